"""One query by Numba against the definition of attention, in a second Python: see in_numba.py."""

import importlib.util
from pathlib import Path

import pytest
from rotation_cases import run


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("numba") is None, reason="Numba is not installed")
def test_one_query_by_numba_is_what_attention_is_defined_as():
    code = Path(__file__).with_name("in_numba.py").read_text()
    assert run(code) == ["served", "True"]
