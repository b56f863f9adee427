"""The README's two commands resolve on an ordinary Linux machine, where no wheel lies ready.

Held against the package index alone, by uv: it reads of each package what it requires, not all of
it. `make resolve` does it with pip.
"""

import functools
import os
import re
import runpy
import shutil
import subprocess
import sys
import tomllib
from itertools import product
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
UV = shutil.which(
    "uv", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
)
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(UV is None, reason="uv, of the extra `dev`, is not installed"),
]
INSTALLS = re.findall(
    r'pip install -c constraints.txt -e "\.\[(.*?)\]"', (ROOT / "README.md").read_text()
)
PINNED = dict(
    line.split("==")
    for line in (ROOT / "constraints.txt").read_text().splitlines()
    if not line.startswith("#")
)
CUDA = re.compile("nvidia-|cuda-")


def plain(name):
    return re.sub("[-_.]+", "-", name).lower()


@functools.cache
def resolved(extras, python):
    """{name: version} that an installer would take, on Linux with glibc and an x86 processor."""
    elsewhere = ("UV_FIND_LINKS", "UV_INDEX", "UV_EXTRA_INDEX_URL", "UV_OVERRIDE", "UV_CONSTRAINT")
    env = {name: value for name, value in os.environ.items() if name not in elsewhere}
    if "PIP_INDEX_URL" in env:
        env.setdefault("UV_DEFAULT_INDEX", env["PIP_INDEX_URL"])
    options = ["-c", "constraints.txt"]
    options += ["--no-config", "--no-header", "--no-annotate", "--only-binary", ":all:", "--quiet"]
    machine = ["--python-version", python, "--python-platform", "x86_64-manylinux_2_28"]
    wanted = [option for extra in extras.split(",") for option in ("--extra", extra)]
    asked = subprocess.run(
        [UV, "pip", "compile", "pyproject.toml", *options, *machine, *wanted],
        cwd=ROOT, env=env, capture_output=True, text=True,
    )  # fmt: skip
    if "error sending request" in asked.stderr:
        pytest.skip("no package index can be reached from here")
    assert asked.returncode == 0, asked.stderr
    return dict(line.split("==") for line in asked.stdout.split())


@pytest.mark.parametrize(
    ("extras", "python"), [*product(INSTALLS, ["3.11"]), *product(INSTALLS[-1:], ["3.12", "3.13"])]
)
def test_the_commands_of_the_readme_resolve_without_local_wheels(extras, python):
    taken = resolved(extras, python)
    assert taken["torch"] == PINNED["torch"]
    assert taken["triton"] == PINNED["triton"]
    pinned = set(map(plain, PINNED))
    assert not {name for name in taken if plain(name) not in pinned and not CUDA.match(name)}


def test_nothing_is_pinned_that_nothing_brings():
    taken = set(map(plain, resolved("all,dev,fast,fuzz", "3.11")))
    assert set(map(plain, PINNED)) <= taken


def test_the_oldest_torch_that_is_promised_is_the_one_that_make_oldest_runs_on():
    promised = re.search(r'"torch>=([\d.]+)"', (ROOT / "pyproject.toml").read_text())[1]
    run_on = re.search(r"^oldest: TORCH = torch==(.*)$", (ROOT / "Makefile").read_text(), re.M)[1]
    assert run_on.rpartition(".")[0] == promised
    assert f"torch {promised} or later" in (ROOT / "README.md").read_text()
    outcomes = (ROOT / "tests/torch_versions.md").read_text()
    assert re.search(rf"^\| {run_on}.* \| 0 \|", outcomes, re.M)


def test_the_pythons_that_are_named_are_those_for_which_it_is_resolved():
    named = re.findall(r"Python :: (3\.\d+)", (ROOT / "pyproject.toml").read_text())
    assert named == ["3.11", "3.12", "3.13"]
    assert f'requires-python = ">={named[0]}"' in (ROOT / "pyproject.toml").read_text()


def test_both_commands_are_found_in_the_readme():
    assert INSTALLS == ["all", "all,dev"]


def test_a_release_is_tried_with_every_extra_on_the_oldest_and_the_newest_python():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    tried = runpy.run_path(str(ROOT / "tools" / "release.py"))
    assert {*tried["CHECKS"]} == {"", *extras} - {"bench", "dev", "fuzz"}  # for a checkout
    assert tried["TORCHES"]["torch 2.7"] in (ROOT / "Makefile").read_text()
    oldest, *_, newest = re.findall(r"Python :: (3\.\d+)", (ROOT / "pyproject.toml").read_text())
    assert f"PYTHONS ?= {oldest} {newest}\n" in (ROOT / "Makefile").read_text()
    outcomes = (ROOT / "tests/installed.md").read_text()
    assert f"| installed | Python {oldest} | Python {newest} |" in outcomes
    assert all(f"\n| {extra} |" in outcomes for extra in ("core", *tried["CHECKS"]) if extra)
    assert "✗" not in outcomes
