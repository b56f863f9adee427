"""Every number on the pages of studies, read from the stores by SQL, without posenc's code."""

import inspect
import json
import re
import runpy
import shutil
from functools import cache
from hashlib import sha256
from itertools import product
from math import pi
from pathlib import Path
from random import Random
from statistics import fmean
from struct import unpack

import pytest
from made_studies import made_store
from stored_outcomes import (
    STUDIES,
    by_seed,
    graded,
    labelled,
    mean,
    means,
    of_seeds,
    rows,
    settings,
    sign_flip,
)

from posenc import T5Bias
from posenc.lab.study import execute
from posenc.lab.study.analysis import analyse
from posenc.lab.study.plan import Plan
from posenc.lab.study.published import published
from posenc.lab.study.store import read
from posenc.lab.study.tasks import copy
from studies.questions import prediction

pytestmark = pytest.mark.repository
STORED = sorted(path.parent.name for path in STUDIES.glob("*/results.db"))
TOOL = STUDIES / "findings.py"
TWICE = ("properties-text", "shape-text")
PLACE = re.compile(r"\{([^{}\n]+)\}")
UNPLANNED = re.compile(
    r"([\w-]+)\.((?!.* published ).+?)( cropped)?(?: - (.+?)( cropped)?)? (lost )?"
    r"(?:at ([\d.]+)|over L…2L)"
)
ALIASING = re.compile(
    r"[\w-]+\.(?:period-(\d+) (predicted|share predicted|most beyond L)"
    r"|none predicted as period-\d+)"
)
EQUAL = re.compile(r"(\w+)\.(.+?) equal to (.+?) cropped over L…2L")
CLIFF = re.compile(r"(\w+)\.(\S+) from ([\d.]+) to ([\d.]+)")


@cache
def tool():
    return runpy.run_path(str(TOOL))


@cache
def written():
    return tool()["pages"]()


def index():
    return (STUDIES / "README.md").read_text()


OLDER = {"shape-copy", "shape-reverse", "pairs-copy", "properties-text", "masked"}


def older():
    return (STUDIES / "older.md").read_text()


@cache
def section(study):
    study = study.partition("#")[0]
    if Path(study).is_absolute():  # a made one, by its path
        return "\n".join(tool()["study_page"](Path(study)))
    return (STUDIES / study / "README.md").read_text()


def flat(study):
    return " ".join(section(study).split())


def plan(study):
    return Plan.read(STUDIES / study.partition("#")[0] / "plan.toml")


def by_task(studies):
    """Each study, or where it has several tasks each of them, as study#task."""
    tasks = {study: plan(study).tasks for study in studies}
    return [f"{study}#{task}" if len(tasks[study]) > 1 else study
            for study in studies for task in tasks[study]]  # fmt: skip


def task_of(study):
    return study.partition("#")[2] or plan(study).tasks[0]


def trained(study):
    # Rows with their own trained length have longer texts. 64: the language model's own
    return min(cell["trained"] or 64 for cell in settings(study))


def all_lengths(study):
    return sorted({n for _, _, n, _ in means(study)})


def lengths(study, times=None):
    """Return the lengths of the plan's metric, or that at `times` the trained length."""
    metric, length = plan(study).metric, trained(study)
    if times is None and metric == "area":
        return [n for n in all_lengths(study) if length < n <= 2 * length]
    asked = float(times or metric.split()[1]) * length
    return [n for n in all_lengths(study) if abs(n - asked) <= 0.5]


def in_bits(study):
    return graded(study)[1] == "float32"


def number(study, value, sign=""):
    if in_bits(study):
        return f"{value:{sign}.3f}"
    return f"{100 * value:{sign}.0f}{' points' if sign else ' %'}"


@pytest.mark.parametrize("study", by_task(STORED))
def test_each_number_of_its_table_is_what_the_store_holds(study):
    """Covers every tested length from L on, so that no ranking is shown at one length only."""
    heads, *lines = re.findall(rf"^\| {task_of(study)} \|.*(?:\n\|.*)+", section(study), re.M)[
        0
    ].splitlines()
    heads, length = [head.strip() for head in heads.split("|")[2:]], trained(study)
    shown = {int(head.removeprefix("n = ")) for head in heads if head.startswith("n = ")}
    of_metric = lengths(study)
    assert shown | {*of_metric} >= {n for n in all_lengths(study) if n >= length}
    columns = {"n ≤ L": [n for n in all_lengths(study) if n <= length]}
    columns |= {f"n = {n}": [n] for n in shown}
    columns |= {"L…2L": [n for n in all_lengths(study) if length < n <= 2 * length]}
    names = {name for _, name, *_ in means(study)}
    readings = ("", "cropped", "windowed")[: {"sliding": 3}.get(graded(study)[0], 1)]
    if graded(study)[0] == "generated" and means(study, "cropped"):
        readings = ("", "cropped")
    planned = {row.name for row in plan(study).encodings}
    assert len(lines) == 1 + len(planned) + len(names) * (len(readings) - 1)
    for line in lines[1:]:
        row, *cells = (cell.strip() for cell in line.split("|")[1:])
        name, _, how = (row, "", "") if row in planned else row.rpartition(" ")
        assert how in readings
        if name not in names:  # of which no seed is done
            assert cells[1] == "not measured"
            continue
        value = lambda at, name=name, how=how: number(study, mean_of(study, name, how, at))  # noqa: E731
        for head, cell in zip(heads, cells, strict=True):
            if head in columns:
                assert cell.split(" [")[0] == value(columns[head])
        shown, _, ends = cells[1].partition(" [")
        # The interval of two or three seeds may be too wide to be printed
        assert shown == value(of_metric)
        assert ends or int(cells[heads.index("seeds")]) <= 3


def mean_of(study, name, how, at):
    """The mean of a row over lengths, and over the seeds that all of them have."""
    found = means(study, *([how] if how else []))
    return fmean(value for (_, row, n, _), value in found.items() if row == name and n in at)


def untrained(study, names):
    """Test whether a seed of a row has fewer than 95 % right at n = L, or at its own length."""
    own = {label: cell["trained"] or 64 for label, cell in labelled(study)}
    low = lambda name: min(by_seed(study, name, own.get(name, 64)), default=1)  # noqa: E731
    return not in_bits(study) and any(low(name) < 0.95 for name in names)


@pytest.mark.parametrize("study", [name for name in by_task(STORED) if not in_bits(name)])
def test_what_is_undertrained_is_said_of_each_row(study):
    (lines,) = re.findall(rf"^\| {task_of(study)} \|.*((?:\n\|.*)+)", section(study), re.M)
    for line in re.findall(r"^\| .* \|$", lines, re.M):
        name = line.split("|")[1].strip().removesuffix(" cropped")
        assert ("undertrained" in line) == untrained(study, [name])


@pytest.mark.parametrize("study", STORED)
def test_it_says_at_which_length_rate_steps_and_seeds_its_outcomes_hold(study):
    cells, asked = settings(study), plan(study)
    steps = {cell["profile"]["steps"] for cell in cells}
    each = [f"{study}#{task}" for task in asked.tasks]
    counts = {len(of_seeds(one, row.name, trained(study)))
              for one in each for row in asked.encodings}  # fmt: skip
    seeds = " to ".join(map(str, sorted({min(counts), max(counts)})))
    where = "over L…2L" if asked.metric == "area" else f"{asked.metric} L"
    chosen = rates(study)
    tried = ", ".join(f"{rate:g}" for rate in asked.rates)
    at = f"learning rate {next(iter(chosen.values())):g}"
    if tried:
        at += f" of each row, chosen at n ≤ L of {tried}"
    several = len({*chosen.values()}) > 1
    if several and not tried:
        at = f"learning rate {' or '.join(f'{rate:g}' for rate in dict.fromkeys(chosen.values()))}"
    elif several:
        listed = (f"{row.name} {chosen[row.name]:g}" for row in asked.encodings)
        at = f"learning rates that were chosen at n ≤ L of {tried} ({', '.join(listed)})"
    if len(steps) == 1:  # rows may have their own
        at += f", {min(steps):,} steps"
    said = f"{where}, L = {trained(study)}, {at}, {seeds} seeds."
    assert f"Outcomes hold {said}" in section(study)
    assert f"Hypothesis, as registered, not a finding: *{asked.hypothesis}*" in section(study)


def compared(study, apart, where):
    """The beginning of a difference as it is written, and its p."""
    (rate, *others) = {*rates(study).values()}
    chosen = ", rates chosen at n ≤ L" * bool(plan(study).rates)
    at = chosen if others else f", rate {rate:g}"
    wins = f"above 0 in {sum(x > 1e-9 for x in apart)} of {len(apart)} seeds"
    value = re.escape(number(study, fmean(apart), "+"))
    return rf"{value} \[\S+, \S+\] \({where}{at}; {wins}; ", sign_flip(apart)


@cache
def rates(study):
    """By label, the learning rate of a row."""
    return {label: cell["profile"]["rate"] for label, cell in labelled(study)}


def sides(study, one, other, at, cropped=(False, False)):
    """The differences of paired seeds; above 0 speaks for the first."""
    sign = -1 if in_bits(study) else 1
    labels = {row.name for row in plan(study).encodings}

    def of(name, cut):
        name, _, length = name.partition(" at ")
        at_length = [int(length)] if length else at
        label = name if name in labels else name.removesuffix(" cropped")
        return of_seeds(study, label, *at_length, cropped=cut or label != name)

    values = [[of(name, cut) for name in side]
              for side, cut in zip((one, other), cropped, strict=True)]  # fmt: skip
    paired = sorted(set.intersection(*({*member} for side in values for member in side)))
    first, second = ([fmean(m[seed] for m in side) for seed in paired] for side in values)
    return [sign * (x - y) for x, y in zip(first, second, strict=True)]


def holm(p):
    adjusted, least = {}, 0.0
    for place, n in enumerate(sorted(p, key=p.__getitem__)):
        least = adjusted[n] = max(least, min(1.0, p[n] * (len(p) - place)))
    return adjusted


TWO_SIDED = [name for name in STORED if {*map(len, plan(name).contrast)} == {2}]
FOUR_SIDED = [name for name in STORED if {*map(len, plan(name).contrast)} == {4}]


@pytest.mark.parametrize("study", FOUR_SIDED)
def test_each_difference_of_differences_is_what_the_store_holds(study):
    """Checks the difference by seed, exact p by all flips of signs, and Holm's by hand."""
    asked, tests = plan(study), {}
    for n, given in enumerate(asked.contrast):
        areas = []
        for side in given:
            (one,) = side
            task, name = one.split(": ")
            areas.append(of_seeds(f"{study}#{task}", name, *lengths(f"{study}#{task}")))
        a, b, c, d = areas
        tests[n] = [(a[seed] - b[seed]) - (c[seed] - d[seed]) for seed in sorted(a)]
    adjusted = holm({n: sign_flip(values) for n, values in tests.items()})
    lines = re.findall(r"^- .*$", section(study).partition("Differences, paired")[2], re.M)
    assert len(lines) == len(tests)
    for n, (given, line) in enumerate(zip(asked.contrast, lines, strict=True)):
        (a,), (b,), (c,), (d,) = given
        assert f"({a} − {b}) − ({c} − {d}): {number(study, fmean(tests[n]), '+')} [" in line
        wins = sum(x > 1e-9 for x in tests[n])
        assert f"above 0 in {wins} of {len(tests[n])} seeds; p = {adjusted[n]:.2g} by Holm" in line
        names = [side[0].split(": ") for side in given]
        weak = any(untrained(f"{study}#{task}", [name]) for task, name in names)
        assert ("undertrained" in line) == weak


@pytest.mark.parametrize("study", by_task(TWO_SIDED))
def test_each_contrast_is_what_the_store_holds(study):
    """Checks difference, seeds, exact p by all flips of signs, and Holm's by hand."""
    asked = plan(study)
    where = "L…2L" if asked.metric == "area" else f"{asked.metric.removeprefix('at ')} L"
    every = [(f"{study.partition('#')[0]}#{task}", sides_of)
             for task in asked.tasks for sides_of in asked.contrast]  # fmt: skip
    tests = {
        (of.partition("#")[2], number): sides(of, *both, lengths(of))
        for number, (of, both) in enumerate(every)
    }
    holms = holm({place: sign_flip(values) for place, values in tests.items() if values})
    places_of = [place for place in tests if place[0] == task_of(study)]
    apart = [tests[place] for place in places_of]
    adjusted = {n: holms[place] for n, place in enumerate(places_of) if place in holms}
    lines = re.findall(
        rf"^- {task_of(study)}, (.*)$", section(study).partition("Differences, paired")[2], re.M
    )
    assert len(lines) == len(apart)
    for n, ((one, other), line) in enumerate(zip(asked.contrast, lines, strict=True)):
        if not apart[n]:
            assert line.endswith(": no paired seeds yet")
            continue
        own = [name.partition(" at ")[2] for name in (*one, *other) if " at " in name]
        begin, _ = compared(study, apart[n], f"n = {' and '.join(own)}" if own else where)
        begin = f"{re.escape(' + '.join(one))} − {re.escape(' + '.join(other))}: {begin}"
        assert re.match(begin + re.escape(f"p = {adjusted[n]:.2g} by Holm"), line), line
        weak = untrained(study, [name.partition(" at ")[0] for name in (*one, *other)])
        assert ("undertrained" in line) == weak
        open_ = re.search("no difference shown|cannot decide|no ranking claims", line) is not None
        assert weak or open_ == (adjusted[n] >= 0.05)


def places(study):
    """Return each place of finding.md with its text on the page."""
    text = (STUDIES / study / "finding.md").read_text().partition("\n")[2].strip()
    literal = map(re.escape, PLACE.split(text)[::2])
    found = re.search("(.+?)".join(literal) + r"\n", section(study), re.DOTALL)
    assert found
    return zip(PLACE.findall(text), found.groups(), strict=True)


@pytest.mark.parametrize(
    "study", [name for name in STORED if (STUDIES / name / "finding.md").exists()]
)
def test_what_no_plan_asked_for_is_what_the_store_holds(study):
    """Checks each place of finding.md with a length."""
    whole = study
    for place, said in places(whole):
        asked = UNPLANNED.fullmatch(place)
        if asked is None or any(form.fullmatch(place) for form in (ALIASING, EQUAL, CLIFF)):
            continue
        task, one, cut, other, other_cut, lost, times = asked.groups()
        study = f"{whole}#{task}"
        length = trained(study)
        at = (lengths(study, times) if times
              else [n for n in all_lengths(study) if length < n <= 2 * length])  # fmt: skip
        if other is None and not of_seeds(study, one, *at):
            assert said == "not measured"
            continue
        if other is None:
            value = mean(study, one, *at, cropped=bool(cut))
            shown, _, ends = said.partition(" [")
            # A mean of exactly half a percent is rounded up or down
            assert shown in {number(study, value + error) for error in (-1e-7, 1e-7)}, place
            assert ends or len(of_seeds(study, one, *at)) <= 3, place
            continue
        apart = sides(study, [one], [other], at, (bool(cut), bool(other_cut)))
        if lost:
            near = sides(study, [one], [other], [length])
            apart = [x - y for x, y in zip(apart, near, strict=True)]
        if not apart:
            assert said == "not measured"
            continue
        begin, p = compared(study, apart, f"{times} L" if times else "L…2L")
        sides_of = [f"{one}{cut or ''}"], [f"{other}{other_cut or ''}"]
        if not lost and sides_of in [tuple(map(list, each)) for each in plan(study).contrast]:
            if at == lengths(study):
                names_of = re.escape(" − ".join(map(" + ".join, sides_of)))
                line = re.search(rf"^- .*, {names_of}: (.*)$", section(whole), re.M)
                assert line
                assert said == line[1]
                continue
        undecided = "; no difference shown" * (p >= 0.05)
        assert re.fullmatch(begin + re.escape(f"p = {p:.2g}{undecided}; not in the plan)"), said), (
            place
        )


def predicted(study, period, row=None):
    """Return the test of bands-copy's plan: n from P + 1 to P + 10 beyond L against the others."""
    far = [n for n in all_lengths(study) if n > trained(study)]
    inside = [n for n in far if 1 <= n - period <= trained(study)]
    others = [n for n in far if n not in inside]
    name = row or f"period-{period}"
    near, rest = of_seeds(study, name, *inside), of_seeds(study, name, *others)
    return inside, far, [near[seed] - rest[seed] for seed in near]


@pytest.mark.parametrize("study", [name for name in STORED if name == "bands-copy"])
def test_the_prediction_of_aliasing_is_tested_as_in_its_plan(study):
    periods = 7, 11, 16, 23
    asked = {period: predicted(study, period) for period in periods}
    p = holm({x: sign_flip(apart) if apart else 1.0 for x, (_, _, apart) in asked.items()})
    said = [(int(match[1]), match[2], text) for place, text in places(study)
            if (match := ALIASING.fullmatch(place)) and match[1]]  # fmt: skip
    forms = "predicted", "share predicted", "most beyond L"
    assert sorted(place[:2] for place in said) == sorted(product(periods, forms))
    for period, what, text in said:
        inside, far, apart = asked[period]
        if not apart:
            assert text == "not measured"
        elif what == "predicted":
            where = f"n from {inside[0]} to {inside[-1]} against the others from 11 to {far[-1]}"
            begin, _ = compared(study, apart, where)
            assert re.match(begin + re.escape(f"p = {p[period]:.2g} by Holm over 4"), text)
            open_ = re.search("no difference shown|no ranking claims", text) is not None
            assert open_ == (p[period] >= 0.05)
        elif what == "share predicted":
            shares = [mean(study, f"period-{period}", n) for n in inside]
            low, high = (number(study, end(shares)) for end in (min, max))
            assert text == (low if low == high else f"{low} to {high}")
        else:
            shares = {n: mean(study, f"period-{period}", n) for n in far}
            best = max(far, key=shares.__getitem__)
            assert text == f"{number(study, shares[best])} at n = {best}"


def test_a_row_without_positions_passes_the_test_of_aliasing():
    """The control that its plan lacks: NoPE, with the p of the period; so it is withdrawn."""
    found = dict(places("bands-copy"))
    assert "**The test of aliasing is withdrawn**" in section("bands-copy")
    for period, sign in ((7, 1), (16, -1)):
        inside, far, apart = predicted("bands-copy", period, "none")
        assert all(sign * x > 0 for x in apart)
        begin, p = compared("bands-copy", apart, f"n from {inside[0]} to {inside[-1]} against the"
                            f" others from 11 to {far[-1]}")  # fmt: skip
        said = found[f"copy.none predicted as period-{period}"]
        assert re.fullmatch(begin + re.escape(f"p = {p:.2g}; not in the plan)"), said)
    assert sign_flip(predicted("bands-copy", 7)[2]) == sign_flip(
        predicted("bands-copy", 7, "none")[2]
    )


def test_a_period_of_seven_copies_up_to_its_cliff_and_not_one_word_further():
    shares = {n: mean("bands-copy", "period-7", n) for n in range(11, 21)}
    assert min(shares[n] for n in range(11, 18)) > 0.4  # up to L + P = 17
    assert shares[18] < 0.011
    near, far = (of_seeds("bands-copy", "period-7", n) for n in (17, 18))
    apart = [near[seed] - far[seed] for seed in near]
    assert min(apart) > 0
    begin, p = compared("bands-copy", apart, "1.7 L against 1.8 L")
    said = dict(places("bands-copy"))["copy.period-7 from 1.7 to 1.8"]
    assert re.fullmatch(begin + re.escape(f"p = {p:.2g}; not in the plan)"), said)
    for name, others in (("without-0-3", range(14, 21)), ("pairs-4-7", range(14, 21))):
        assert (
            max(mean("bands-copy", name, n) - mean("bands-copy", "all", n) for n in others) < 0.01
        )


def test_what_a_pilot_says_is_what_its_cells_hold():
    """The running store has one seed; its tables have every row, and no contrast."""
    text = section("use-of-length")
    assert "**Pilot, not evidence.**" in text
    assert "0.004, 1,500 steps, 1 seed." in text
    assert "Differences, paired" not in text
    cells = {(cell["task"], label) for label, cell in labelled("use-of-length")}
    assert len(cells) == 8
    for task, name in cells:
        share = lambda n, of=f"use-of-length#{task}", name=name: mean(of, name, n)  # noqa: E731
        (line,) = re.findall(rf"^\| {task} \|.*(?:\n\|.*)*?\n\| {name} \|([^\n]*)", text, re.M)
        cut = [cell.strip() for cell in line.split("|")]
        assert cut[2:13] == [f"{100 * share(n):.0f} %" for n in range(20, 42, 2)]
    assert f"{100 * mean('use-of-length#copy-unique', 'rope', 24):.0f} % [" in text
    batches = {study: {cell["profile"]["batch"] for cell in settings(study)}
               for study in ("use-of-length", "shape-copy")}  # fmt: skip
    assert batches == {"use-of-length": {128}, "shape-copy": {32}}
    rate = {study: {cell["profile"]["rate"] for cell in settings(study)}
            for study in ("use-of-length", "shape-copy")}  # fmt: skip
    assert rate == {"use-of-length": {4e-3}, "shape-copy": {1e-3}}


def test_no_page_prints_an_interval_that_is_wider_than_90_points():
    """1,200 wrong answers cannot give "0 % [0, 98]"; 2 is 1 − 0.025^(1/200), in percent."""
    pages = [*STUDIES.rglob("README.md"), *(STUDIES.parent / "docs").rglob("*.md"),
             STUDIES.parent / "README.md"]  # fmt: skip
    count = 0
    for page in pages:
        # shares that a band brings back have a sign: they may be far more than all of the loss
        text = re.sub(r"[+-]\d+ % \[.*?\]", "", page.read_text())
        for low, high in re.findall(r"\d (?:%|points) \[([+-]?\d+), ([+-]?\d+)\]", text):
            count += 1
            assert int(high) - int(low) <= 90, f"{page.name}: [{low}, {high}]"
    assert count > 150
    said = dict(places("shape-copy"))
    assert said["copy.alibi at 1.4"] == "0 % [0, 2]"
    assert round(100 * (1 - 0.025 ** (1 / 200))) == 2


def test_what_a_plan_asks_for_is_not_called_unplanned():
    assert plan("masked").contrast[0] == (("rope",), ("learned",))
    said = dict(places("masked"))
    assert said["masked.rope - learned over L…2L"].endswith("by Holm)")
    assert said["masked.rope - nope over L…2L"].endswith("by Holm)")
    assert said["masked.learned - nope over L…2L"].endswith("not in the plan)")


@pytest.mark.parametrize("study", ["fair-text", "pairs-text", "shape-text", "properties-text"])
def test_bits_stop_falling_after_ten_letters_within_the_trained_length(study):
    """Averages bits by position, over all seeds and lengths."""
    assert "stop falling after six to ten letters" in flat(study)
    arena = " ".join((STUDIES.parent / "docs/studies.md").read_text("utf-8").split())
    assert "last 6 to 10 characters" in arena
    texts = {}
    for label, cell, data in rows(
        study,
        "SELECT label, settings, data FROM cells JOIN outcomes USING (digest)"
        " WHERE protocol = 'position'",
    ):
        cell = json.loads(cell)
        if cell["seed"] <= 10_000:
            texts.setdefault(label or cell["encoding"], []).append(unpack("<64f", data[:256]))
    ends = {"1": (1, 2), "6–7": (6, 8), "8–11": (8, 12), "48–63": (48, 64)}
    table = section(study).partition("| bits within L")[2]
    heads = [head.strip() for head in table.splitlines()[0].split("|")[1:-1]]
    for name, each in texts.items():
        bits = [fmean(at) for at in zip(*each, strict=True)]
        groups = {head: fmean(bits[a:b]) for head, (a, b) in ends.items()}
        assert groups["48–63"] > groups["8–11"] - 0.005
        assert groups["1"] > groups["6–7"] + 0.5
        (line,) = re.findall(rf"^\| {re.escape(name)} \|(.*) \|$", table, re.M)[:1]
        shown = dict(zip(heads, (cell.strip() for cell in line.split("|")), strict=True))
        for head, value in groups.items():
            assert shown[head] == f"{value:.3f}"


def test_alibi_is_quoted_with_two_heads_and_with_four():
    heads = {study: {cell["profile"]["heads"] for cell in settings(study)}
             for study in ("fair-text", "shape-text")}  # fmt: skip
    assert heads == {"fair-text": {2}, "shape-text": {4}}
    for study in heads:
        for of in heads:
            assert f"{mean(of, 'alibi', 128):.3f} [" in flat(study)


@pytest.mark.skipif("bands-copy" not in STORED, reason="no outcome is here")
def test_periods_beyond_the_trained_length_copy_none_of_the_predicted_lengths():
    """Claims of its page and the paper; period 7 copies the predicted lengths and not the next."""
    share = lambda period, n: mean("bands-copy", f"period-{period}", n)  # noqa: E731
    assert max(share(p, n) for p in (11, 16, 23) for n in predicted("bands-copy", p)[0]) < 0.05
    assert min(share(7, n) for n in predicted("bands-copy", 7)[0]) > 0.3
    assert share(7, 18) < 0.05
    assert share(23, 11) > 0.5


def crops(study):
    """(encoding, what reading on costs over cropping, by seed), at each length beyond L."""
    names = {name for _, name, *_ in means(study)}
    for n in (n for n in all_lengths(study) if n > trained(study)):
        for name in names:
            read, cut = (by_seed(study, name, n, cropped=cropped) for cropped in (False, True))
            yield name, [x - y for x, y in zip(read, cut, strict=True)]


@pytest.mark.parametrize("study", ["pairs-text", "shape-text"])
def test_cropping_needs_fewer_bits_in_every_row_at_every_length_with_every_seed(study):
    assert "in every row, at every length beyond L and with every seed" in flat(study)
    assert all(min(costs) > 0 for _, costs in crops(study))
    plain = {"pairs-text": "all", "shape-text": "rope"}[study]
    names = {name for _, name, *_ in means(study)}
    far = lengths(study)
    for at in (far, [128]):
        least = mean(study, plain, *at, cropped=True)
        assert min(mean(study, name, *at) for name in names) > least


def test_cropping_needs_fewer_bits_with_every_encoding_but_fox():
    study = "properties-text"
    assert "Every row needs fewer bits at 2 L if it is cropped" in flat(study)
    names = {name for _, name, *_ in means(study)}
    cost = {name: mean(study, name, 128) - mean(study, name, 128, cropped=True) for name in names}
    assert abs(cost.pop("fox")) < 0.0005
    assert min(cost.values()) > 0.001


def test_beyond_the_first_step_next_to_nothing_is_copied_or_reversed():
    copied, turned = means("shape-copy"), means("shape-reverse")
    names = {name for _, name, *_ in copied}
    assert max(mean("shape-copy", name, n) for name in names for n in (16, 18, 20)) < 1 / 50
    assert {share for (_, _, n, _), share in turned.items() if n >= 16} == {0}


@pytest.mark.parametrize("study", ["shape-copy", "shape-reverse"])
def test_published_numbers_stand_beside_at_the_same_multiple_of_the_length(study):
    (task,) = {cell["task"] for cell in settings(study)}
    shape = published(task)
    assert shape.trained == 2 * trained(study)  # "an L twice as large"
    at = round(1.2 * shape.trained)
    asked = re.findall(r"\.(\S+) published at 1\.2\}", (STUDIES / study / "finding.md").read_text())
    values = [point.value for name in asked for point in shape.curves[name] if point.length == at]
    stated = r"published numbers for .*? at 1\.2 L, with an L twice as large, are"
    said = re.split(stated, flat(study))[1]
    assert [float(value) for value in re.findall(r"(\d+) %", said)[: len(asked)]] == values


def test_what_is_said_of_speeds_is_what_the_cells_had():
    cells = rows("pairs-copy", "SELECT label, settings FROM cells WHERE label != 'none'")
    speeds = {label: json.loads(cell)["options"]["theta"] for label, cell in cells}
    assert max(speeds["lowest-8"]) == 0.01  # "a hundredth of a radian per token or less"
    assert set(speeds["equal-4"]) == {0, 1}
    assert max(max(theta) for theta in speeds.values()) == 1  # "the fastest speed here"
    between = {theta for theta in speeds["all"] if 0.01 < theta < 0.178}
    alone = [{x for x in theta if x} for theta in speeds.values()]
    assert not any(
        turning <= between for turning in alone
    )  # "No row rotates only the pairs between"


@pytest.mark.parametrize("study", ["shape-copy", "shape-reverse", "shape-text"])
def test_t5_had_the_bias_of_an_encoder(study):
    assert "has the bias of an encoder here" in flat(study)
    options = [cell["options"] for cell in settings(study) if cell["encoding"] == "t5"]
    assert options == [{}] * len(options)
    assert inspect.signature(T5Bias).parameters["bidirectional"].default is True


def test_near_doubles_are_what_decided_a_property(monkeypatch):
    """By `predict`, with them and without: the reference of its p's is its own test."""
    said = section("properties-text")
    (alone,) = re.findall(r"^\| learned \| (\+[\d.]+) \| ([\d.]+) \|", said, re.M)
    assert f"The rank correlation of *learned* is\n{alone[0]}, p = {alone[1]} by Holm." in said
    assert "nope = sine" in said
    assert "rope = p-rope" in said
    monkeypatch.setattr(prediction, "ALIKE", 0.0)
    contents = read(STUDIES / "properties-text")
    (twice,) = prediction.predict(contents, analyse(contents))
    (learned,) = (one for one in twice.effects if one.property == "learned")
    assert learned.adjusted < 0.05 < float(alone[1])


@pytest.mark.parametrize("study", STORED)
def test_the_plan_is_the_one_that_was_registered(study):
    digest, text = rows(study, "SELECT digest, text FROM plans ORDER BY number")[-1]
    assert digest == sha256(text.encode()).hexdigest()
    assert plan(study).digest == digest


@pytest.mark.parametrize(
    "study",
    sorted(
        path.parent.name
        for path in STUDIES.glob("*/plan.toml")
        # The plan of use-of-length has no controls
        if path.parent.name not in (*STORED, "use-of-length")
    ),
)
def test_a_plan_that_is_not_run_yet_can_be_evidence(study):
    """The plan has controls, two rates and enough seeds, and its cells can be made."""
    registered = plan(study)
    registered.check_evidence()
    cells = execute.resolved(registered)
    assert len(cells) == registered.seeds * len(registered.encodings) * len(registered.tasks)


def test_cells_that_were_run_twice_are_equal_in_the_stores():
    """Five encodings and three seeds are in both studies of the language model."""
    select = "SELECT digest, protocol, length, prompts, data FROM outcomes"
    stores = [{tuple(row) for row in rows(name, select)} for name in TWICE]
    both = {row[0] for row in stores[0]} & {row[0] for row in stores[1]}
    of_both = [{row for row in store if row[0] in both} for store in stores]
    assert len(both) == 15
    assert of_both[0] == of_both[1]
    assert f"`{TWICE[0]}` and `{TWICE[1]}` have 15 cells in common" in index()
    assert "in 15 of these cells" in index()


def test_a_second_run_of_a_whole_study_agrees_as_it_is_written():
    """The means of both at 2 L, each row of the first with its interval as it is written."""
    first, again = means("shape-text"), means("shape-text/again")
    assert first.keys() == again.keys()
    row = r"^\| (\w+) \|[^|]*\| \S+ \[([\d.]+), ([\d.]+)\]"
    intervals = re.findall(row, section("shape-text"), re.M)[:5]
    apart = []
    for name, low, high in intervals:
        one, other = (
            fmean(found["language", name, 128, seed] for seed in range(1, 8))
            for found in (first, again)
        )
        assert float(low) <= other <= float(high), name
        apart.append(abs(one - other))
    assert f"5 of {len(intervals)} rows are within the intervals" in index()
    assert f"at most {max(apart):.4f} from its means" in index()


def test_what_is_written_is_what_the_outcomes_say():
    """The page of each study, and the one that has a line for each of them."""
    pages = written()
    kept = {*STUDIES.rglob("README.md"), STUDIES / "older.md"} - {STUDIES / "arena/README.md"}
    assert {*pages} == kept
    assert [path for path, text in pages.items() if path.read_text() != text] == []


@pytest.mark.parametrize("study", sorted(path.parent.name for path in STUDIES.glob("*/plan.toml")))
def test_the_index_has_one_line_for_each_study(study):
    """Checks title, first statement of the page, conditions and the link to the page."""
    whole = older() if study in OLDER else index()
    assert f"({study}/README.md)" not in (index() if study in OLDER else older())
    (entry,) = (one for one in whole.splitlines() if f"({study}/README.md)" in one)
    page = section(study)
    statement = re.findall("^> (.*)", page, re.M)
    if not any((STUDIES / study / name).exists() for name in ("results.db", "running.db")):
        assert entry.endswith(" Nothing is measured yet.")
        return
    assert len(statement) == 1
    assert f"[{page.splitlines()[0].removeprefix('# ')}]" in entry
    assert statement[0] in entry
    assert re.search(r"Outcomes hold (.*)\.\n", page)[1] in entry


@pytest.mark.parametrize("study", sorted(OLDER))
def test_an_older_study_lacks_what_the_page_says_it_lacks(study):
    """No positive control; each is named in the list of what cannot be shown."""
    assert not plan(study).positive
    assert f"`{study}`" in older().partition("A line for each")[0]


def test_the_reasons_why_older_studies_decide_nothing_are_in_their_stores():
    """Repeated words, copies at the measured length, seeds, and bits within L."""
    text = Random(0)
    words = [copy(10, text)[1] for _ in range(200)]
    assert any(len({*one}) < 10 for one in words)
    assert all(
        plan(study).tasks[0] in ("copy", "reverse") for study in ("shape-copy", "pairs-copy")
    )
    assert mean("pairs-copy", "all", *lengths("pairs-copy")) < 0.01
    assert len({cell["seed"] for cell in settings("properties-text")}) == 3
    within = {name: mean("masked", name, 32) for name in ("learned", "nope", "rope")}
    assert within["learned"] > within["nope"] - 0.1 > within["rope"]


@pytest.mark.parametrize(
    "file",
    sorted([*STUDIES.glob("*/finding.md"), *STUDIES.glob("*/pilot.md")]),
    ids=lambda file: f"{file.parent.name} {file.stem}",
)
def test_a_finding_has_no_number_of_its_own(file):
    """But years, lengths as 1.2 L, and names."""
    text = re.sub(r"T5|\{[^{}\n]+\}|`[^`]+`|\b(19|20)\d\d\b|\d(\.\d)? ?L\b", "", file.read_text())
    text = re.sub("(above|below) 0|[Pp]airs 0 to 3|[Pp]airs 4 to 7", "", text)
    assert not re.findall(r"\d+", text)


@pytest.mark.parametrize("study", ["pairs-text", "pairs-copy", "bands-copy"])
def test_frequencies_of_pairs_follow_from_the_names_of_their_rows(study):
    """Compares θ in the plan with 10,000^(−j/16), period by period and band by band."""
    full = [10_000 ** (-j / 16) for j in range(16)]
    found = {row.name: row.options["theta"] for row in plan(study).encodings if row.options}
    assert len(found) > 8
    for name, theta in found.items():
        kind, *numbers = name.split("-")
        n = [int(number) for number in numbers]
        expected = {
            "all": lambda n: full,
            "base": lambda n: [500_000 ** (-j / 16) for j in range(16)],
            "pairs": lambda n: [x if n[0] <= j <= n[1] else 0 for j, x in enumerate(full)],
            "without": lambda n: [0 if n[0] <= j <= n[1] else x for j, x in enumerate(full)],
            "period": lambda n: [2 * pi / n[0]] * 4 + [0] * 12,
            "highest": lambda n: full[: n[0]] + [0] * (16 - n[0]),
            "lowest": lambda n: [0] * (16 - n[0]) + full[-n[0] :],
            "spread": lambda n: [10_000 ** (-j / n[0]) for j in range(n[0])] + [0] * (16 - n[0]),
            "equal": lambda n: [1] * n[0] + [0] * (16 - n[0]),
        }[kind](n)
        assert list(theta) == pytest.approx(expected), name


@pytest.mark.parametrize("seeds", [8, 3])
@pytest.mark.parametrize("study", ["bands-copy", "fair-text", "use-of-length", "masked"])
def test_a_store_that_is_not_complete_is_written_as_it_stands(tmp_path, study, seeds):
    """A made one, of which the last seed lacks some rows, by the tests of those that are stored."""
    folder = tmp_path / study
    shutil.copytree(STUDIES / study, folder, ignore=shutil.ignore_patterns("*.db*", "*.jsonl"))
    made_store(folder, seeds)
    made, planned = str(folder), plan(study)
    text = section(made)
    one = len(planned.encodings) * len(planned.tasks)
    assert f"; {seeds * one - 2} of {planned.seeds * one} cells" in text
    assert text.count("not measured") == 0
    for one in [f"{made}#{task}" for task in planned.tasks]:
        test_each_number_of_its_table_is_what_the_store_holds(one)
        test_each_contrast_is_what_the_store_holds(one)
        if not in_bits(one):
            test_what_is_undertrained_is_said_of_each_row(one)
    test_it_says_at_which_length_rate_steps_and_seeds_its_outcomes_hold(made)
    if (folder / "finding.md").exists():
        test_what_no_plan_asked_for_is_what_the_store_holds(made)
    if study == "bands-copy":
        test_the_prediction_of_aliasing_is_tested_as_in_its_plan(made)


@pytest.mark.parametrize("study", ["bands-copy", "fair-text"])
def test_a_store_without_an_outcome_says_that_nothing_is_measured(tmp_path, study):
    folder = tmp_path / study
    shutil.copytree(STUDIES / study, folder, ignore=shutil.ignore_patterns("*.db*", "*.jsonl"))
    made_store(folder, 0)
    assert f"; 0 of {len(plan(study).cells())} cells" in section(str(folder))
    assert "over L…2L, 5,000 steps, 0 seeds" in section(str(folder)) or study == "bands-copy"
    nothing = "not measured", "no paired seeds yet"
    asked = ((place, said) for place, said in places(str(folder)) if "|" not in place)
    assert all(said in nothing for place, said in asked if place != "seeds")
