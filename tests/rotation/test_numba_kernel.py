"""The kernel of Numba against the formula, bit for bit, in a second Python: see in_numba.py."""

import importlib.util
from pathlib import Path

import pytest
from rotation_cases import run


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("numba") is None, reason="Numba is not installed")
def test_the_kernel_of_numba_equals_the_formula():
    code = Path(__file__).with_name("in_numba.py").read_text()
    assert run(code) == ["turned", "60"]
