"""The wheel contains every file of the package folder, `py.typed` included; the
source distribution is small, makes the same wheel, and its tests skip files that it lacks."""

import subprocess
import sys
import tarfile
import zipfile
from collections import Counter
from pathlib import Path

import pytest

from posenc.catalog import CATALOG

pytestmark = pytest.mark.slow

pytest.importorskip("hatchling", reason="hatchling, of the extra `dev`, is not installed")
ROOT = Path(__file__).parent.parent
LEFT_OUT = [
    "studies",
    "benchmarks",
    "docs/pictures",
    "docs/paper/*.svg",
    "examples/pictures",
    ".ci",
]


def built(target, folder, source=ROOT):
    build = [sys.executable, "-m", "hatchling", "build", "-t", target, "-d", str(folder)]
    done = subprocess.run(build, cwd=source, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (file,) = folder.glob("posenc-*.whl" if target == "wheel" else "posenc-*.tar.gz")
    return file


def in_wheel(wheel):
    return {name for name in zipfile.ZipFile(wheel).namelist() if name.startswith("posenc/")}


def in_source():
    files = [file for file in (ROOT / "src" / "posenc").rglob("*") if file.is_file()]
    return {str(f.relative_to(ROOT / "src")) for f in files if "__pycache__" not in f.parts}


def test_the_wheel_holds_the_marker_of_types_and_all_data(tmp_path):
    packed = in_wheel(built("wheel", tmp_path))
    made = {name for name in packed if name.startswith("posenc/made/")}
    assert packed - made == in_source()
    kinds = Counter(name.split("/")[2].split(".")[0] for name in made)
    assert kinds == {"properties": len(CATALOG), "explorer": len(CATALOG), "page": 1}
    assert {"posenc/py.typed", "posenc/analysis/northanger_abbey.txt.xz"} <= packed
    assert "posenc/models/config/families/families.json" in packed


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """The source distribution and the folder that it unpacks to."""
    folder = tmp_path_factory.mktemp("source")
    archive = built("sdist", folder)
    with tarfile.open(archive) as file:
        file.extractall(folder, filter="data")
    return archive, folder / archive.name.removesuffix(".tar.gz")


def test_the_source_distribution_leaves_out_what_was_measured_and_drawn(source):
    archive, unpacked = source
    assert archive.stat().st_size < 2_300_000
    assert not [file for name in LEFT_OUT for file in unpacked.glob(name)]
    for name in ("README.md", "LICENSE", "CHANGELOG.md", "tests/conftest.py", "tools/families.py"):
        assert (unpacked / name).is_file()


def test_the_source_distribution_makes_the_same_wheel(source, tmp_path):
    packed = in_wheel(built("wheel", tmp_path, source[1]))
    assert packed == in_wheel(built("wheel", tmp_path / "whole"))


def test_its_tests_are_collected_and_those_of_what_it_leaves_out_skipped(source):
    run = [sys.executable, "-m", "pytest", "-q", "-m", "repository", "-p", "no:cacheprovider"]
    done = subprocess.run(run, cwd=source[1], capture_output=True, text=True)
    last = done.stdout.splitlines()[-1]
    assert done.returncode == 0, done.stdout
    assert " skipped, " in last, last
    assert not {"passed", "failed", "error"} & {*last.replace(",", "").split()}, last
