"""Every number of studies/README.md, read out of the stores by SQL, without this library's code."""

import inspect
import json
import re
import runpy
import sys
from functools import cache
from hashlib import sha256
from statistics import fmean

import pytest
from stored_outcomes import STUDIES, by_seed, mean, means, rows, settings, sign_flip

from posenc import T5Bias
from posenc.lab.study import prediction
from posenc.lab.study.analysis import analyse
from posenc.lab.study.plan import Plan
from posenc.lab.study.published import published
from posenc.lab.study.store import read

pytestmark = pytest.mark.repository
STORED = sorted(path.parent.name for path in STUDIES.glob("*/results.db"))
TEXTS = [name for name in STORED if name.endswith("-text")]
TOOL = STUDIES.parent / "tools/findings.py"
TWICE = ("properties-text", "shape-text")
PLACE = re.compile(r"\{([^{}\n]+)\}")
UNPLANNED = re.compile(
    r"\w+\.(\S+)( cropped)?(?: - (\S+)( cropped)?)? (lost )?(?:at ([\d.]+)|over L…2L)"
)


@cache
def written():
    return runpy.run_path(str(TOOL))["written"]()


def section(study):
    text = (STUDIES / "README.md").read_text().partition(f"({study}/plan.toml)")[2]
    return text.partition("\n## ")[0]


def flat(study):
    return " ".join(section(study).split())


def plan(study):
    return Plan.read(STUDIES / study / "plan.toml")


def trained(study):
    (length,) = {cell["trained"] or 64 for cell in settings(study)}  # 64: the language model's own
    return length


def all_lengths(study):
    return sorted({n for _, _, n, _ in means(study)})


def lengths(study, times=None):
    """Those of the plan's metric, or at so many times the trained length."""
    metric, length = plan(study).metric, trained(study)
    if times is None and metric == "area":
        return [n for n in all_lengths(study) if length < n <= 2 * length]
    asked = float(times or metric.split()[1]) * length
    return [n for n in all_lengths(study) if abs(n - asked) <= 0.5]


def number(study, value, sign=""):
    if study in TEXTS:
        return f"{value:{sign}.3f}"
    return f"{100 * value:{sign}.0f}{' points' if sign else ' %'}"


@pytest.mark.parametrize("study", STORED)
def test_each_number_of_its_table_is_what_the_store_holds(study):
    """Of every tested length from L on, so that no order is shown at one length alone."""
    heads, *lines = re.findall(
        r"^\| (?:copy|reverse|language) \|.*(?:\n\|.*)+", section(study), re.M
    )[0].splitlines()
    heads, length = [head.strip() for head in heads.split("|")[2:]], trained(study)
    shown = {int(head.removeprefix("n = ")) for head in heads if head.startswith("n = ")}
    of_metric = lengths(study)
    assert shown | {*of_metric} >= {n for n in all_lengths(study) if n >= length}
    columns = {"n ≤ L": [n for n in all_lengths(study) if n <= length]}
    columns |= {f"n = {n}": [n] for n in shown}
    columns |= {"L…2L": [n for n in all_lengths(study) if length < n <= 2 * length]}
    names = {name for _, name, *_ in means(study)}
    readings = ("", "cropped", "windowed") if study in TEXTS else ("",)
    assert len(lines) == 1 + len(names) * len(readings)
    for line in lines[1:]:
        row, *cells = (cell.strip() for cell in line.split("|")[1:])
        name, _, how = (row, "", "") if row in names else row.rpartition(" ")
        assert how in readings
        value = lambda at, name=name, how=how: number(study, mean_of(study, name, how, at))  # noqa: E731
        for head, cell in zip(heads, cells, strict=True):
            if head in columns:
                assert cell.split(" [")[0] == value(columns[head])
        assert cells[1].startswith(f"{value(of_metric)} [")


def mean_of(study, name, how, at):
    """The mean of a row over lengths, and over the seeds that all of them have."""
    found = means(study, *([how] if how else []))
    return fmean(value for (_, row, n, _), value in found.items() if row == name and n in at)


def untrained(study, names):
    """Whether a seed of one of them has fewer than 95 % right at n = L."""
    length = trained(study)
    return study not in TEXTS and any(min(by_seed(study, name, length)) < 0.95 for name in names)


@pytest.mark.parametrize("study", [name for name in STORED if name not in TEXTS])
def test_what_is_undertrained_is_said_of_each_row(study):
    for line in re.findall(r"^\| .* \|$", section(study), re.M)[2:]:
        name = line.split("|")[1].strip()
        assert ("undertrained" in line) == untrained(study, [name])


@pytest.mark.parametrize("study", STORED)
def test_it_says_at_which_length_rate_steps_and_seeds_its_outcomes_hold(study):
    cells, asked = settings(study), plan(study)
    ((rate, steps),) = {(cell["profile"]["rate"], cell["profile"]["steps"]) for cell in cells}
    seeds = len({cell["seed"] for cell in cells})
    where = "over L…2L" if asked.metric == "area" else f"{asked.metric} L"
    said = f"{where}, L = {trained(study)}, learning rate {rate}, {steps:,} steps, {seeds} seeds."
    assert f"Outcomes hold {said}" in section(study)
    assert f"Hypothesis, as registered, no finding: *{asked.hypothesis}*" in section(study)


def compared(study, apart, where):
    """The beginning of a difference as it is written, and its p."""
    (rate,) = {cell["profile"]["rate"] for cell in settings(study)}
    wins = f"above 0 in {sum(x > 0 for x in apart)} of {len(apart)} seeds"
    value = re.escape(number(study, fmean(apart), "+"))
    return rf"{value} \[\S+, \S+\] \({where}, rate {rate}; {wins}; ", sign_flip(apart)


def sides(study, one, other, at, cropped=(False, False)):
    """The differences of paired seeds; above 0 speaks for the first."""
    sign = -1 if study in TEXTS else 1
    one, other = (
        [fmean(values) for values in zip(*(by_seed(study, name, *at, cropped=cut) for name in side),
                                         strict=True)]
        for side, cut in zip((one, other), cropped, strict=True)
    )  # fmt: skip
    return [sign * (x - y) for x, y in zip(one, other, strict=True)]


@pytest.mark.parametrize("study", [name for name in STORED if plan(name).contrast])
def test_each_contrast_is_what_the_store_holds(study):
    """Its difference, seeds, exact p by all flips of signs, and Holm's by hand."""
    asked = plan(study)
    where = "L…2L" if asked.metric == "area" else f"{asked.metric.removeprefix('at ')} L"
    apart = [sides(study, one, other, lengths(study)) for one, other in asked.contrast]
    p, adjusted, least = [sign_flip(values) for values in apart], {}, 0.0
    for place, n in enumerate(sorted(range(len(p)), key=p.__getitem__)):
        least = adjusted[n] = max(least, min(1.0, p[n] * (len(p) - place)))
    lines = re.findall(r"^- \w+, (.*)$", section(study).partition("Differences, paired")[2], re.M)
    assert len(lines) == len(apart)
    for n, ((one, other), line) in enumerate(zip(asked.contrast, lines, strict=True)):
        begin, _ = compared(study, apart[n], where)
        begin = f"{re.escape(' + '.join(one))} − {re.escape(' + '.join(other))}: {begin}"
        assert re.match(begin + re.escape(f"p = {adjusted[n]:.2g} by Holm"), line), line
        weak = untrained(study, [*one, *other])
        assert ("undertrained" in line) == weak
        open_ = "no difference shown" in line or "cannot decide" in line
        assert weak or open_ == (adjusted[n] >= 0.05)


@pytest.mark.parametrize("study", STORED)
def test_what_no_plan_asked_for_is_what_the_store_holds(study):
    """Each place of finding.md that names a length, and what was written into it."""
    text = (STUDIES / study / "finding.md").read_text().partition("\n")[2].strip()
    literal = map(re.escape, PLACE.split(text)[::2])
    found = re.search("(.+?)".join(literal), section(study), re.DOTALL)
    assert found
    for place, said in zip(PLACE.findall(text), found.groups(), strict=True):
        asked = UNPLANNED.fullmatch(place)
        if asked is None:
            continue
        one, cut, other, other_cut, lost, times = asked.groups()
        length = trained(study)
        at = (lengths(study, times) if times
              else [n for n in all_lengths(study) if length < n <= 2 * length])  # fmt: skip
        if other is None:
            value = mean(study, one, *at, cropped=bool(cut))
            assert said.startswith(f"{number(study, value)} ["), place
            continue
        apart = sides(study, [one], [other], at, (bool(cut), bool(other_cut)))
        if lost:
            near = sides(study, [one], [other], [length])
            apart = [x - y for x, y in zip(apart, near, strict=True)]
        begin, p = compared(study, apart, f"{times} L" if times else "L…2L")
        undecided = "; no difference shown" * (p >= 0.05)
        assert re.fullmatch(begin + re.escape(f"p = {p:.2g}{undecided}; not in the plan)"), said), (
            place
        )


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
    assert all(mean(study, name, *far) > mean(study, plain, *far, cropped=True) for name in names)


def test_cropping_needs_fewer_bits_with_every_encoding_but_fox():
    study = "properties-text"
    assert "every row needs fewer bits at 2 L when it is cropped" in flat(study)
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
    said = flat(study).partition("Published, at 1.2 L of an L twice as large,")[2]
    assert [float(value) for value in re.findall(r"(\d+) %", said)[: len(asked)]] == values


def test_what_is_said_of_speeds_is_what_the_cells_had():
    cells = rows("pairs-copy", "SELECT label, settings FROM cells WHERE label != 'none'")
    speeds = {label: json.loads(cell)["options"]["theta"] for label, cell in cells}
    assert max(speeds["lowest-8"]) == 0.01  # "a hundredth of a radian a token or less"
    assert set(speeds["equal-4"]) == {0, 1}
    assert max(max(theta) for theta in speeds.values()) == 1  # "the fastest speed here"
    between = {theta for theta in speeds["all"] if 0.01 < theta < 0.178}
    alone = [{x for x in theta if x} for theta in speeds.values()]
    assert not any(turning <= between for turning in alone)  # "no row turns those between alone"


@pytest.mark.parametrize("study", ["shape-copy", "shape-reverse", "shape-text"])
def test_t5_had_the_bias_of_an_encoder(study):
    assert "bias is that of an encoder here" in flat(study)
    options = [cell["options"] for cell in settings(study) if cell["encoding"] == "t5"]
    assert options == [{}] * len(options)
    assert inspect.signature(T5Bias).parameters["bidirectional"].default is True


def test_near_doubles_are_what_decided_a_property(monkeypatch):
    """By `predict`, with them and without: the reference of its p's is its own test."""
    said = section("properties-text")
    (alone,) = re.findall(r"^\| learned \| (\+[\d.]+) \| ([\d.]+) \|", said, re.M)
    assert f"Of *learned* the rank correlation is\n{alone[0]}, p = {alone[1]} by Holm." in said
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


def test_cells_that_were_run_twice_are_equal_in_the_stores():
    """Five encodings and three seeds are in both studies of the language model."""
    select = "SELECT digest, protocol, length, prompts, data FROM outcomes"
    stores = [{tuple(row) for row in rows(name, select)} for name in TWICE]
    both = {row[0] for row in stores[0]} & {row[0] for row in stores[1]}
    of_both = [{row for row in store if row[0] in both} for store in stores]
    assert len(both) == 15
    assert of_both[0] == of_both[1]
    assert f"`{TWICE[0]}` and `{TWICE[1]}` have 15 cells in common" in written()
    assert "in 15 of them" in written()


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
    assert f"5 of {len(intervals)} rows agree" in written()
    assert f"at most {max(apart):.4f} from its means" in written()


def test_what_is_written_is_what_the_outcomes_say():
    assert (STUDIES / "README.md").read_text() == written()


@pytest.mark.parametrize("file", sorted(STUDIES.glob("*/finding.md")), ids=lambda f: f.parent.name)
def test_a_finding_has_no_number_of_its_own(file):
    """But years, lengths as 1.2 L, and names."""
    text = re.sub(r"T5|\{[^{}\n]+\}|`[^`]+`|\b(19|20)\d\d\b|\d(\.\d)? ?L\b", "", file.read_text())
    assert not re.findall(r"\d+", text)


@pytest.mark.parametrize("tool", ["pairs_plan.py", "bands_plan.py"])
def test_plans_of_pairs_are_as_their_tool_writes_them(monkeypatch, tool):
    monkeypatch.setattr(sys, "argv", [tool, "--check"])
    runpy.run_path(str(STUDIES.parent / "tools" / tool), run_name="__main__")
