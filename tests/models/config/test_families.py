"""families.json against the script that writes it, and against the class that reads it."""

import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest
from thorough import THOROUGH, some

from posenc.models.config import families

ROOT = Path(__file__).parents[3]


def test_every_field_of_a_line_is_one_of_family_and_in_its_order():
    """The order written must not depend on which rule was asked first."""
    order = [field.name for field in fields(families.Family)]
    for line in families._lines().values():
        assert list(line) == [name for name in order if name in line]


@pytest.mark.slow
def test_families_are_as_the_script_writes_them_from_the_transformers_that_is_installed():
    """Nothing in the file was corrected by hand."""
    pytest.importorskip("transformers")
    names = [] if THOROUGH else some(families.model_types(), 12)
    command = [sys.executable, str(ROOT / "tools" / "families.py"), "--check", *names]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
