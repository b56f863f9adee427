"""Every number of studies/README.md, read out of the stores by SQL, without this library's code."""

import json
import re
import runpy
import sqlite3
import sys
from contextlib import closing
from functools import cache
from hashlib import sha256
from pathlib import Path
from statistics import fmean
from struct import unpack

import pytest

from posenc.study.plan import Plan

pytestmark = pytest.mark.repository
STUDIES = Path(__file__).parent.parent / "studies"
STORED = sorted(path.parent for path in STUDIES.glob("*/results.db"))
TOOL = STUDIES.parent / "tools/findings.py"
TWICE = ("properties-text", "shape-text")
GRADED = ("generated", "sliding")


@cache
def written():
    return runpy.run_path(str(TOOL))["written"]()


def rows(folder, statement):
    name = f"{(folder / 'results.db').as_uri()}?mode=ro&immutable=1"
    with closing(sqlite3.connect(name, uri=True)) as file:
        return file.execute(statement).fetchall()


def means(folder):
    """By task, encoding, length and seed: the mean over prompts."""
    found = {}
    select = "SELECT settings, label, protocol, length, kind, prompts, data"
    for settings, label, protocol, n, kind, prompts, data in rows(
        folder, f"{select} FROM cells JOIN outcomes USING (digest)"
    ):
        if protocol not in GRADED:
            continue
        if kind == "bits":
            values = [byte >> place & 1 for byte in data for place in range(7, -1, -1)][:prompts]
        else:
            values = unpack(f"<{prompts}f", data)
        settings = json.loads(settings)
        place = settings["task"], label or settings["encoding"], n, settings["seed"]
        found[place] = fmean(values)
    return found


def lengths(plan, trained, tested):
    if plan.metric == "area":
        return [n for n in tested if trained < n <= 2 * trained]
    return [n for n in tested if abs(n - float(plan.metric.split()[1]) * trained) <= 0.5]


@pytest.mark.parametrize("folder", STORED, ids=lambda folder: folder.name)
def test_each_row_has_the_mean_that_the_store_holds(folder):
    plan, found = Plan.read(folder / "plan.toml"), means(folder)
    text = (STUDIES / "README.md").read_text().partition(f"({folder.name}/plan.toml)")[2]
    text = text.partition("\n## ")[0]
    for task in {task for task, *_ in found}:
        of_task = {place[1:]: mean for place, mean in found.items() if place[0] == task}
        trained = plan.trained or json.loads(
            rows(folder, "SELECT settings FROM cells")[0][0]
        )["trained"]  # fmt: skip
        asked = lengths(plan, trained, {n for _, n, _ in of_task})
        for name in {name for name, *_ in of_task}:
            mean = fmean(
                value for (who, n, _), value in of_task.items() if who == name and n in asked
            )
            bits = not 0 <= mean <= 1 or task == "language"
            shown = f"{mean:.3f}" if bits else f"{100 * mean:.0f} %"
            assert re.search(rf"^\| {re.escape(name)} \|[^|]*\| {re.escape(shown)} ", text, re.M), (
                name
            )


def test_what_no_plan_asked_for_is_what_the_store_holds():
    """T5 beside RoPE at 4 L, and what each loses from L to 2 L; L is 64."""
    found = means(STUDIES / "shape-text")
    text = (STUDIES / "README.md").read_text()
    bits = lambda name, n: [found["language", name, n, seed] for seed in range(1, 8)]  # noqa: E731
    far = fmean(bits("rope", 256)) - fmean(bits("t5", 256))
    lost = {name: fmean(bits(name, 128)) - fmean(bits(name, 64)) for name in ("rope", "t5")}
    assert f"against {fmean(bits('rope', 256)):.3f} [" in text
    assert f"{far:+.3f} [" in text
    assert f"loses less than RoPE does: {lost['rope'] - lost['t5']:+.3f} [" in text
    assert all(t5 < rope for t5, rope in zip(bits("t5", 256), bits("rope", 256), strict=True))


@pytest.mark.parametrize("folder", STORED, ids=lambda folder: folder.name)
def test_the_plan_is_the_one_that_was_registered(folder):
    digest, text = rows(folder, "SELECT digest, text FROM plans ORDER BY number")[-1]
    assert digest == sha256(text.encode()).hexdigest()
    assert Plan.read(folder / "plan.toml").digest == digest


def test_cells_that_were_run_twice_are_equal_in_the_stores():
    """Five encodings and three seeds are in both studies of the language model."""
    select = "SELECT digest, protocol, length, prompts, data FROM outcomes"
    stores = [{tuple(row) for row in rows(STUDIES / name, select)} for name in TWICE]
    both = {row[0] for row in stores[0]} & {row[0] for row in stores[1]}
    of_both = [{row for row in store if row[0] in both} for store in stores]
    assert len(both) == 15
    assert of_both[0] == of_both[1]
    assert f"`{TWICE[0]}` and `{TWICE[1]}` have 15 cells in common" in written()
    assert "in 15 of them" in written()


def test_a_second_run_of_a_whole_study_agrees_as_it_is_written():
    """The means of both at 2 L, each row of the first with its interval as it is written."""
    first, again = means(STUDIES / "shape-text"), means(STUDIES / "shape-text" / "again")
    assert first.keys() == again.keys()
    section = (STUDIES / "README.md").read_text().partition("(shape-text/plan.toml)")[2]
    intervals = re.findall(r"^\| (\w+) \|[^|]*\| \S+ \[([\d.]+), ([\d.]+)\]", section, re.M)[:5]
    apart = []
    for name, low, high in intervals:
        one, other = (
            fmean(found["language", name, 128, seed] for seed in range(1, 8))
            for found in (first, again)
        )
        assert float(low) <= other <= float(high), name
        apart.append(abs(one - other))
    assert f"5 of {len(intervals)} rows agree" in written()
    assert f"at most {max(apart):.4f} from its means" in written()


def test_what_is_written_is_what_the_outcomes_say():
    assert (STUDIES / "README.md").read_text() == written()


@pytest.mark.parametrize("file", sorted(STUDIES.glob("*/finding.md")), ids=lambda f: f.parent.name)
def test_a_finding_has_no_number_of_its_own(file):
    """But years, lengths as 1.2 L, and names."""
    text = re.sub(r"T5|\{[^{}\n]+\}|`[^`]+`|\b(19|20)\d\d\b|\d(\.\d)? ?L\b", "", file.read_text())
    assert not re.findall(r"\d+", text)


def test_plans_of_pairs_are_as_their_tool_writes_them(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["pairs_plan.py", "--check"])
    runpy.run_path(str(STUDIES.parent / "tools/pairs_plan.py"), run_name="__main__")
