"""The wheel holds every file of the package, `py.typed` too, held against the folder it is of."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

pytest.importorskip("hatchling", reason="hatchling, of the extra `dev`, is not installed")
ROOT = Path(__file__).parent.parent


def test_the_wheel_holds_the_marker_of_types_and_all_data(tmp_path):
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    built = subprocess.run(build, cwd=ROOT, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    (wheel,) = tmp_path.glob("posenc-*.whl")
    packed = {name for name in zipfile.ZipFile(wheel).namelist() if name.startswith("posenc/")}
    files = [file for file in (ROOT / "src" / "posenc").rglob("*") if file.is_file()]
    there = {str(f.relative_to(ROOT / "src")) for f in files if "__pycache__" not in f.parts}
    assert packed == there
    assert {"posenc/py.typed", "posenc/data/northanger_abbey.txt.xz"} <= packed
    assert "posenc/models/config/families.json" in packed
