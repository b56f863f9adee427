"""What traces the code, in a second Python without the shape checker, which stands in the way."""

import subprocess
import sys
from pathlib import Path


def test_all_that_traces_the_code_passes():
    folder = Path(__file__).parent / "compiled"
    options = ["-q", "-o", "addopts=--import-mode=importlib", "-p", "no:cacheprovider"]
    asked = subprocess.run(
        [sys.executable, "-m", "pytest", *options, str(folder)],
        cwd=folder.parents[1], capture_output=True, text=True,
    )  # fmt: skip
    assert asked.returncode == 0, asked.stdout + asked.stderr
    assert " passed" in asked.stdout
