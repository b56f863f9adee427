"""What is said of a missing extra, held against pip and against every file that people read: nobody
owns the name `posenc` on the package index, so nothing may tell pip to ask for it there."""

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from posenc.core import extras

ROOT = Path(__file__).parents[2]
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
    assert (extras.CHECKOUT / "src/posenc/core/extras.py").is_file()


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
