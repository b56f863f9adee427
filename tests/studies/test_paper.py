"""docs/paper against the stores, by SQL and plain loops: its numbers, and those of its figures."""

import csv
import json
import re
import runpy
import shutil
from math import pi
from statistics import fmean

import pytest
from made_studies import made_store
from stored_outcomes import STUDIES, cost_of_reading_on, mean, names, of_seeds, rows

pytestmark = pytest.mark.repository
PAPER = STUDIES.parent / "docs/paper"
TEXTS = ("fair-text", "pairs-text", "properties-text", "shape-text")


@pytest.fixture(scope="module")
def tool():
    return runpy.run_path(str(STUDIES / "paper.py"))


def swaps():
    """By encoding, length, first pair and way: what comes back, by seed."""
    found = {}
    for row in csv.DictReader((STUDIES / "pairs-text/bands.csv").read_text().splitlines()):
        place = row["encoding"], int(row["length"]), int(row["first"]), row["how"]
        found.setdefault(place, []).append(float(row["recovered"]))
    return found


def bits_lost(name, length):
    """The bits that all seeds lose from L on, together."""
    far, near = of_seeds("pairs-text", name, length), of_seeds("pairs-text", name, 64)
    return sum(far[seed] - near[seed] for seed in far)


def swapped(name, length, first):
    """(bits as trained, bits with the band slowed) of each seed."""
    before = of_seeds("pairs-text", name, length)
    asked = name, str(length), str(first), "slowed"
    for row in csv.DictReader((STUDIES / "pairs-text/bands.csv").read_text().splitlines()):
        if (row["encoding"], row["length"], row["first"], row["how"]) == asked:
            yield before[int(row["seed"])], row["bits"]


def test_it_is_what_its_command_writes(tool):
    """Text and numbers of figures; figures are drawn of these numbers by the same command."""
    assert (PAPER / "paper.md").read_text("utf-8") == tool["paper_text"]()
    assert (PAPER / "draft.md").read_text("utf-8") == tool["paper_text"](name="draft-source.md")
    for name, figure in tool["figures"]().items():
        assert (PAPER / f"{name}.csv").read_text("utf-8") == tool["numbers"](figure)
        assert (PAPER / f"{name}.svg").read_text("utf-8").startswith("<?xml")


@pytest.mark.parametrize("source", ["source.md", "draft-source.md"])
def test_its_source_has_no_number_of_its_own(source):
    text = (PAPER / source).read_text("utf-8").partition("## References")[0]
    text = text.replace('"decides 3: 1 for more, 2 for fewer"', "")  # a quotation
    text = re.sub(
        r"\{[^{}\n]+\}|`[^`]+`|arXiv:[\d.]+|\b(19|20)\d\d\b|\b(\d(\.\d)? L|T5)\b", "", text
    )
    text = re.sub(
        r"^(    |!\[).*$|Figure \d|95 %|n [+−] 1|share is 1|, 0 if|(above|below) 0",
        "",
        text,
        flags=re.M,
    )
    assert not re.findall(r".*\d.*", text)


def test_what_it_says_of_bands_is_what_each_swap_came_to():
    text, found = (PAPER / "paper.md").read_text("utf-8"), swaps()
    percent = lambda *place: f"{100 * fmean(found[place]):+.0f} % ["  # noqa: E731
    flat = " ".join(text.split())
    assert f"slowed, it recovers {percent('all', 128, 4, 'slowed')}" in flat
    second, fastest = (
        sum(before - float(after) for before, after in swapped("all", 128, first))
        / bits_lost("all", 128)
        for first in (4, 0)
    )
    later = percent("all", 256, 4, "slowed")
    assert f"] at 2 L (together {100 * second:+.0f} %) and {later}" in flat
    assert f"] (together {100 * fastest:+.0f} %). With the larger base" in flat
    assert f"stopped, it recovers {percent('all', 128, 4, 'still')}" in flat
    assert f"slowed, makes all worse, {percent('all', 128, 0, 'slowed')}" in flat
    assert f"it recovers {percent('base', 128, 4, 'slowed')}" in flat
    for name, length in (("all", 128), ("all", 256), ("base", 128), ("base", 256)):
        assert max(found[name, length, 0, "slowed"]) < max(found[name, length, 4, "slowed"])
        assert fmean(found[name, length, 0, "slowed"]) < 0  # "makes all worse"
        assert fmean(found[name, length, 4, "slowed"]) > 0.5 or (name, length) == ("base", 128)
        for first in (8, 12):  # "too little to break anything at this length"
            assert abs(fmean(found[name, length, first, "slowed"])) < 0.03


def test_turns_are_those_of_its_speeds():
    flat = " ".join((PAPER / "paper.md").read_text("utf-8").split())
    cells = rows("pairs-text", "SELECT DISTINCT label, settings FROM cells WHERE label = 'all'")
    theta = json.loads(cells[0][1])["options"]["theta"]
    turns = [64 * speed / (2 * pi) for speed in theta]
    assert f"of pairs that make {turns[7]:.2g} to {turns[4]:.2g} turns within L" in flat
    assert f"({turns[15]:.2g} to {turns[8]:.2g} turns)" in flat


def test_no_row_that_reads_on_needs_fewer_bits_than_the_same_row_cropped():
    """No row could, because these models look back six to ten letters."""
    assert "look back six to ten letters" in (PAPER / "paper.md").read_text("utf-8")
    assert (
        min(fmean(cost_of_reading_on(study, name)) for study in TEXTS for name in names(study))
        > -0.0005
    )


def test_the_figure_of_bands_shows_their_means():
    found = swaps()
    lines = list(csv.DictReader((PAPER / "bands.csv").read_text().splitlines()))
    shown = {
        (row["panel"], int(row["series"].split()[2]), int(row["at"].split()[0])): row["value"]
        for row in lines
        if row["series"].endswith("mean")
    }
    assert len(shown) == 16
    for (name, length, first), value in shown.items():
        assert float(value) == pytest.approx(
            100 * fmean(found[name, length, first, "slowed"]), abs=1e-3
        )


def test_the_draft_has_numbers_of_complete_studies_only(tool, tmp_path):
    """A made store, complete, fills the places of one study and no other."""
    text = (PAPER / "draft.md").read_text("utf-8")
    source = (PAPER / "draft-source.md").read_text("utf-8")
    asked = re.findall(r"\{([\w-]+)\|(controls|contrasts)\}", source)
    waiting = [study for study, _ in asked if not (STUDIES / study / "results.db").exists()]
    assert text.count("*This study is not complete.*") == len(waiting)
    for folder in STUDIES.iterdir():
        (tmp_path / folder.name).symlink_to(folder)
    (tmp_path / "recall-20").unlink()
    (tmp_path / "recall-20").mkdir()
    shutil.copy(STUDIES / "recall-20/plan.toml", tmp_path / "recall-20")
    made_store(tmp_path / "recall-20", 8)
    new = tool["paper_text"](tmp_path, "draft-source.md")
    assert new.count("*This study is not complete.*") == len(waiting) - 2
    one, other = (mean(str(tmp_path / "recall-20"), name, 80) for name in ("yarn", "rope"))
    assert f"yarn − rope: {100 * (one - other):+.0f} points [" in new


@pytest.fixture
def made(tmp_path):
    """The studies, with made stores of those that the paper waits for."""

    def make(seeds):
        for folder in STUDIES.iterdir():
            if folder.name in ("bands-copy", "fair-text"):
                (tmp_path / folder.name).mkdir()
                shutil.copy(folder / "plan.toml", tmp_path / folder.name)
                made_store(tmp_path / folder.name, seeds)
            else:
                (tmp_path / folder.name).symlink_to(folder)
        return tmp_path

    return make


def test_it_says_what_other_stores_hold(tool, made):
    folder = made(8)
    text = tool["paper_text"](folder)
    flat = " ".join(text.split())
    assert "86 of 110 cells, 7 to 8 seeds of each row" in flat
    assert "Period seven: " in flat
    copied = str(folder / "bands-copy")
    best = max(range(11, 35), key=lambda n: mean(copied, "period-16", n))
    share = f"{100 * mean(copied, 'period-16', best):.0f} %"
    assert f"Largest share copied beyond L: {share} at n = {best}." in flat
    assert "This test is withdrawn" in flat
    fair = str(folder / "fair-text")
    for name in ("t5", "rope"):
        old, new = mean("properties-text", name, 128), mean(fair, name, 128)
        assert re.search(rf"\| {name} \| {old:.3f} \[\S+ \S+ \| {new:.3f} \[", text)
    trials = re.search(r"^\| nope \| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \| (\S+) \|$", text, re.M)
    by_rate = {}
    for label, cell in ((label, json.loads(x)) for label, x in rows(
        fair, "SELECT label, settings FROM cells"
    )):  # fmt: skip
        if label == "nope" and cell["seed"] > 10_000:
            by_rate.setdefault(cell["profile"]["rate"], []).append(cell["seed"])
    assert {len(seeds) for seeds in by_rate.values()} == {2}
    said = [float(value) for value in trials.groups()[:3]]
    assert sorted(by_rate)[said.index(min(said))] == float(trials[4])
    drawn = tool["figures"](folder)
    assert {*drawn} == {"bands", "copied", "rates"}
    lines = csv.DictReader(tool["numbers"](drawn["copied"]).splitlines())
    for row in lines:
        value = 100 * mean(copied, row["panel"], int(row["at"]))
        assert float(row["value"]) == pytest.approx(value, abs=1e-3)
    (panel,) = drawn["rates"].panels
    for n, study in enumerate(("properties-text", fair)):
        marks = panel.marks[n]
        for name, value in zip(panel.x_names, marks.y, strict=True):
            assert value == pytest.approx(mean(study, name, 128))
