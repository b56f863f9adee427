"""families.json against the script that writes it, and against the class that reads it."""

import ast
import inspect
import re
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


def test_the_page_that_adds_a_family_has_every_field_and_what_was_read():
    """docs/families.md against the class, its docstring and the line of the family it adds."""
    page = (ROOT / "docs" / "families.md").read_text("utf-8")
    rows = re.findall(r"^\| ([A-Z].*?) \| (`.*`) \|$", page, re.MULTILINE)
    named = [name for _, cell in rows for name in re.findall(r"`(\w+)`", cell)]
    order = [field.name for field in fields(families.Family)]
    assert ["name", "folder", "kind", *named] == order
    assert {*re.findall(r"^    `(\w+)`", families.Family.__doc__, re.MULTILINE)} == {*order}
    source = inspect.getsource(families.Family)
    assert re.findall(r"^    # (.+)", source, re.MULTILINE) == ["What it is", *dict(rows)]
    *_, block = re.findall(r"```json\n(.*?)```", page, re.DOTALL)
    ((name, read),) = ast.literal_eval(f"{{{block}}}").items()
    family = families.family(name)
    assert {field: getattr(family, field) for field in read} == read


@pytest.mark.slow
def test_families_are_as_the_script_writes_them_from_the_transformers_that_is_installed():
    """Nothing in the file was corrected by hand."""
    pytest.importorskip("transformers")
    names = [] if THOROUGH else some(families.model_types(), 12)
    command = [sys.executable, str(ROOT / "tools" / "families.py"), "--check", *names]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
