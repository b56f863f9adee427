"""What traces the code, in a second Python without the shape checker, which stands in the way."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

FOLDER = Path(__file__).parent / "compiled"
# A Python for each would import torch's compiler six times; these two halves take as long.
FIRST = ("test_every_card.py", "test_rotate.py", "test_adapter.py")
REST = tuple(sorted({file.name for file in FOLDER.glob("test_*.py")} - {*FIRST}))


@pytest.mark.parametrize("files", [FIRST, REST], ids=" ".join)
def test_all_that_traces_the_code_passes(files):
    options = ["-q", "-rs", "-o", "addopts=--import-mode=importlib", "-p", "no:cacheprovider"]
    asked = subprocess.run(
        [sys.executable, "-m", "pytest", *options, *(str(FOLDER / file) for file in files)],
        cwd=FOLDER.parents[1], capture_output=True, text=True,
    )  # fmt: skip
    if asked.returncode == 5:  # nothing was collected: what it needs is missing
        pytest.skip(asked.stdout.strip().splitlines()[-2])
    assert asked.returncode == 0, asked.stdout + asked.stderr
    assert " passed" in asked.stdout


def test_by_hand_they_are_skipped_with_a_sentence():
    """`pytest tests/compiled/test_rotate.py` has the shape checker: pyproject.toml asks for it."""
    by_hand = [sys.executable, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider"]
    asked = subprocess.run(
        [*by_hand, str(FOLDER / "test_rotate.py")],
        cwd=FOLDER.parents[1], capture_output=True, text=True,
    )  # fmt: skip
    assert "the shape checker stands in the way of tracing" in asked.stdout
    assert " skipped" in asked.stdout
    assert not any(word in asked.stdout for word in (" passed", " failed", " error"))
