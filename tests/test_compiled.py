"""What traces the code, in a second Python without the shape checker, which stands in the way."""

import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent / "compiled"


def test_by_hand_they_are_skipped_with_a_sentence():
    """As `pytest tests/compiled` would: with the shape checker, which pyproject.toml asks for."""
    asked = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", str(FOLDER)],
        cwd=FOLDER.parents[1], capture_output=True, text=True,
    )  # fmt: skip
    assert "the shape checker stands in the way of tracing" in asked.stdout
    assert " skipped" in asked.stdout
    assert not any(word in asked.stdout for word in (" passed", " failed", " error"))


@pytest.mark.parametrize("file", sorted(FOLDER.glob("test_*.py")), ids=lambda file: file.stem)
def test_all_that_traces_the_code_passes(file):
    options = ["-q", "-rs", "-o", "addopts=--import-mode=importlib", "-p", "no:cacheprovider"]
    asked = subprocess.run(
        [sys.executable, "-m", "pytest", *options, str(file)],
        cwd=FOLDER.parents[1], capture_output=True, text=True,
    )  # fmt: skip
    if asked.returncode == 5:  # nothing was collected: what it needs is missing
        pytest.skip(asked.stdout.strip().splitlines()[-2])
    assert asked.returncode == 0, asked.stdout + asked.stderr
    assert " passed" in asked.stdout
