"""Instructions for a missing extra, against pip and against every page. Nobody owns the name
`posenc` on the package index, so no command may make pip look for it there."""

import json
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from posenc.support import extras

ROOT = Path(__file__).parents[2]
ABOUT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
PROJECT = {"": ABOUT["dependencies"], **ABOUT["optional-dependencies"]}
PLACES = ("src", "docs", "examples", "tests", "studies", "benchmarks", "tools", ".ci")
TOP = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", "Makefile")
TEXTS = {".py", ".md", ".ipynb", ".html", ".j2", ".js", ".toml", ".txt", ""}


def test_from_a_checkout_it_is_the_checkout_that_is_installed(monkeypatch, tmp_path):
    monkeypatch.setattr(extras, "CHECKOUT", tmp_path)
    (tmp_path / "pyproject.toml").write_text("")
    said = extras.how_to_install("report")
    assert said == f'python -m pip install -e ".[report]" in {tmp_path}'


def test_from_a_wheel_it_is_the_wheel_that_is_installed(monkeypatch, tmp_path):
    monkeypatch.setattr(extras, "CHECKOUT", tmp_path)
    said = extras.how_to_install("report")
    assert said.startswith('python -m pip install "PATH[report]" with the path of posenc\'s wheel')


def test_this_checkout_is_known_for_one():
    assert (extras.CHECKOUT / "src/posenc/support/extras.py").is_file()


@pytest.mark.parametrize("extra", ["", "cli", "study", "all"])
def test_extras_are_the_same_in_a_checkout_and_in_what_is_installed(extra, monkeypatch, tmp_path):
    """The installation must be as new as the checkout; names of other extras are resolved."""
    here = extras.requirements()
    lines = [f"{p}; extra == '{name}'" if name else p for name, ps in PROJECT.items() for p in ps]
    monkeypatch.setattr(extras, "CHECKOUT", tmp_path)
    monkeypatch.setattr(extras.metadata, "requires", lambda name: lines)
    assert extras.requirements()[extra] == here[extra]
    assert not any("posenc" in package for package in here[extra])
    assert here["study"][:2] == here["cli"]


@pytest.mark.parametrize(
    ("package", "serves"),
    [
        ("there", True), ("there>=4", True), ("there>=4.2.11", True), ("there>=4.3", False),
        ("there<5", True), ("there>=4,<4.2", False), ("there==4.2.11", True), ("missing", False),
    ],
)  # fmt: skip
def test_what_is_too_old_or_too_new_does_not_serve(package, serves, monkeypatch):
    def version(name):
        if name == "missing":
            raise extras.metadata.PackageNotFoundError
        return "4.2.11+cpu"

    monkeypatch.setattr(extras.metadata, "version", version)
    assert extras.version(package) == ("4.2.11+cpu" if serves else None)


def test_whatever_brings_safetensors_brings_numpy_too():
    """safetensors needs numpy to write torch tensors, but neither it nor torch requires numpy."""
    asked = [{extras.name(p) for p in packages} for packages in extras.requirements().values()]
    assert all("numpy" in names for names in asked if "safetensors" in names)


@pytest.mark.slow
def test_pip_installs_an_extra_of_a_wheel_without_any_index(tmp_path, monkeypatch):
    pytest.importorskip("hatchling", reason="hatchling, of the extra `dev`, is not installed")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (path,) = tmp_path.glob("posenc-*.whl")
    monkeypatch.setattr(extras, "CHECKOUT", tmp_path)
    python, *command = shlex.split(extras.how_to_install("cli").partition(" with ")[0])
    assert python == "python"
    command = [word.replace("PATH", str(path)) for word in command]
    offline = ["--no-index", "--no-deps", "--dry-run", "--ignore-installed", "--report", "-", "-q"]
    done = subprocess.run([sys.executable, *command, *offline], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (taken,) = json.loads(done.stdout)["install"]
    assert (taken["metadata"]["name"], taken["requested_extras"]) == ("posenc", ["cli"])


def files():
    inner = (file for place in PLACES for file in (ROOT / place).rglob("*"))
    return [
        file
        for file in (*inner, *(ROOT / name for name in TOP))
        if file.is_file() and file.suffix in TEXTS and "__pycache__" not in file.parts
        and "node_modules" not in file.parts and file != Path(__file__)
    ]  # fmt: skip


def test_nothing_tells_pip_to_ask_an_index_for_posenc():
    asked = re.compile(r"""install\s+['"]?posenc\b|['"`]posenc\[""")
    wrong = {str(f): asked.search(f.read_text("utf-8", "replace")) for f in files()}
    assert {name: found[0] for name, found in wrong.items() if found} == {}
