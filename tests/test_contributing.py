"""The map of CONTRIBUTING.md against the folders: what to open is there, and what to run."""

import re
from pathlib import Path

import pytest

pytestmark = pytest.mark.repository
ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in PAGE.splitlines()
    if line.startswith("| ") and "`pytest" in line
]
SOURCE = ROOT / "src/posenc"


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_what_the_map_names_is_there(row):
    _, places, command = row
    opened = re.findall(r"`([^`]+)`", places)
    run = [word for word in command.strip("`").split() if word.startswith("tests")]
    assert opened
    assert run
    assert all((ROOT / path).exists() for path in opened + run)


def test_the_map_leads_into_every_room():
    rooms = {path.name for path in SOURCE.iterdir() if path.is_dir() and any(path.glob("*.py"))}
    inner = {f"{wing}/{room.name}" for wing in ("show", "lab") for room in (SOURCE / wing).iterdir()
             if room.is_dir() and any(room.glob("*.py"))}  # fmt: skip
    opened = " ".join(row[1] for row in ROWS)
    elsewhere = {
        "show",
        "lab",
        "analysis",
        "show/plot",
    }  # folders of packages, and modules without a line
    missing = [name for name in (rooms | inner) - elsewhere if f"src/posenc/{name}/" not in opened]
    assert not missing


def test_it_is_one_screen():
    assert len(PAGE.splitlines()) <= 75


def test_every_target_it_names_is_one_of_make():
    targets = {line.partition(":")[0] for line in (ROOT / "Makefile").read_text().splitlines()}
    pages = PAGE + (ROOT / "docs/tests.md").read_text("utf-8")
    named = re.findall(r"(?:^|`)make ([a-z]+)", pages, re.MULTILINE)
    assert {*named} <= targets
