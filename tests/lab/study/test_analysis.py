"""The table of a study against outcomes that were put in, worked out by hand."""

from dataclasses import asdict, replace
from itertools import product
from statistics import mean

import made_studies
import pytest
import torch
from refusals import refused

from posenc.lab.study import analysis
from posenc.lab.study.cell import PROFILES, Cell, Profile, Result
from posenc.lab.study.plan import Plan, PlanError
from posenc.lab.study.store import Contents, Outcome, Record

TRAINED, LENGTHS, PROMPTS = 10, (5, 10, 12, 15, 20, 25), 40
SMALL = Profile(steps=5, prompts=PROMPTS)


def plan(encodings=("nope", "rope", "alibi"), tasks=("copy",), seeds=6, **rest):
    content = {"tasks": [*tasks], "encodings": [*encodings], "profile": asdict(SMALL)}
    content |= {"trained": TRAINED, "tested": [*LENGTHS]} | rest
    return Plan.of(content | ({"seeds": seeds} if seeds else {}))


def right(share):
    return torch.arange(PROMPTS) < share * PROMPTS


def contents(planned, shares, protocol="generated", failures=()):
    """`shares(cell, length)` is the share of right answers, or bits per character."""
    records = {}
    for cell in planned.cells():
        outcomes = {}
        for n in LENGTHS:
            share = shares(cell, n)
            bits = torch.full((PROMPTS,), share) if protocol == "sliding" else right(share)
            outcomes[protocol, n] = bits
            outcomes["forced", n] = right(1.0)
        record = Record.of(cell, Result(outcomes, (1.0,), 100, 0.5))
        if (cell.encoding, cell.seed) in failures:
            record = Record(cell, None, (), "the loss of step 5 is nan", {})
        records[cell.digest] = replace(record, seconds=0.01 * cell.seed)
    return Contents([(planned.digest, planned.text)], [], {}, records)


def falling(cell, n):
    """NoPE stays right, RoPE falls beyond its length, ALiBi in between; seeds differ a little."""
    beyond = {"nope": 0.9, "rope": 0.1, "alibi": 0.6}[cell.encoding] - 0.02 * cell.seed
    return 1.0 if n <= TRAINED else beyond


def test_a_row_is_what_its_outcomes_say():
    found = analysis.analyse(contents(plan(), falling))
    rows = {row.encoding: row for row in found.rows}
    rope = rows["rope"]
    assert rope.in_range == 1
    assert rope.by_seed == pytest.approx(
        [int(PROMPTS * (0.1 - 0.02 * seed) + 0.999) / PROMPTS for seed in range(1, 7)], abs=0.026
    )
    assert rope.value.value == pytest.approx(mean(rope.by_seed))
    assert rope.value.low <= rope.value.value <= rope.value.high
    assert (rope.below, rope.parameters, rope.seeds) == (12, 100, [1, 2, 3, 4, 5, 6])
    assert rows["nope"].below is None
    assert rope.curve[20] == pytest.approx(rope.curve[12])
    assert rope.seconds in (0.03, 0.04)


def test_rows_stand_as_the_plan_has_them_and_nobody_has_a_place():
    """A higher mean by chance is not a ranking: only contrasts decide."""
    found = analysis.analyse(contents(plan(["rope", "nope", "alibi"]), falling))
    assert found.stamp == ""
    assert [row.encoding for row in found.rows] == ["rope", "nope", "alibi"]
    assert not {"rank", "place"} & found.to_json()["rows"][0].keys()


def test_six_seeds_decide_one_contrast_of_a_plan_and_not_six():
    both = ["nope", "alibi"]
    pairs = [["nope", "rope"], ["nope", "alibi"], ["alibi", "rope"]]
    sums = [[both, "rope"], ["nope", ["alibi", "rope"]], [["nope", "rope"], "alibi"]]
    for contrasts in (1, 6):
        planned = plan(contrast=[*pairs, *sums][:contrasts])
        found = analysis.analyse(contents(planned, falling))
        assert {contrast.decided for contrast in found.contrasts} == {contrasts == 1}


def test_what_is_not_right_in_range_is_undertrained():
    weak = lambda cell, n: 0.92 if cell.encoding == "nope" else falling(cell, n)  # noqa: E731
    planned = plan(seeds=7, contrast=[["nope", "rope"], ["alibi", "rope"]])
    found = analysis.analyse(contents(planned, weak))
    rows = {row.encoding: row for row in found.rows}
    assert rows["nope"].undertrained == [*range(1, 8)]
    assert [one.verdict for one in found.contrasts] == ["undertrained: nope", ""]


@pytest.mark.parametrize(("at_20", "weak"), [(1.0, []), (0.9, [*range(1, 7)])])
def test_a_row_that_is_trained_on_longer_texts_must_have_learned_those(at_20, weak):
    """Right in 80 % of the texts of L; texts of its own length, 20, alone decide the gate."""
    taught = {"name": "taught", "encoding": "alibi", "trained": 20}
    planned = plan(["nope", taught], contrast=[["taught", "nope"]])
    share = lambda cell, n: (  # noqa: E731
        {20: at_20}.get(n, 0.8) if cell.name == "taught" else falling(cell, n)
    )
    found = analysis.analyse(contents(planned, share))
    assert [row.undertrained for row in found.rows] == [[], weak]
    assert [row.trained for row in found.rows] == [TRAINED, TRAINED]
    assert [one.verdict for one in found.contrasts] == ["undertrained: taught" if weak else ""]


@pytest.mark.parametrize(("seeds", "stamp"), [(3, "3 seeds: no ranking claims"), (6, "")])
def test_few_seeds_decide_nothing(seeds, stamp):
    planned = plan(seeds=seeds, contrast=[["nope", "rope"]])
    found = analysis.analyse(contents(planned, falling))
    assert found.stamp == stamp
    assert [one.verdict for one in found.contrasts] == [stamp]


def test_smoke_is_stamped_however_many_seeds():
    planned = plan(profile="smoke", contrast=[["nope", "rope"]])
    found = analysis.analyse(contents(planned, falling))
    assert found.stamp == "smoke: no ranking claims"
    assert found.contrasts[0].verdict == found.stamp
    assert planned.profile == PROFILES["smoke"]


def test_a_contrast_is_paired_by_seed_with_exact_p_and_holm():
    planned = plan(contrast=[["nope", "rope"], ["rope", "alibi"], [["nope", "alibi"], ["rope"]]])
    found = analysis.analyse(contents(planned, falling))
    one, two, three = found.contrasts
    rows = {row.encoding: row.by_seed for row in found.rows}
    apart = [a - b for a, b in zip(rows["nope"], rows["rope"], strict=True)]
    assert one.by_seed == pytest.approx(apart)
    assert one.difference.value == pytest.approx(mean(apart))
    assert one.difference.value > 0.7
    flips = [
        abs(sum(s * x for s, x in zip(flip, apart, strict=True)))
        for flip in product((1, -1), repeat=6)
    ]
    assert one.p == pytest.approx(mean(flip >= abs(sum(apart)) - 1e-9 for flip in flips))
    assert one.adjusted == pytest.approx(3 * one.p)
    assert two.difference.value < 0
    both = [(a + b) / 2 for a, b in zip(rows["nope"], rows["alibi"], strict=True)]
    assert three.by_seed == pytest.approx([a - b for a, b in zip(both, rows["rope"], strict=True)])


def test_bits_count_the_other_way():
    bits = lambda cell, n: {"nope": 2.0, "rope": 3.0, "alibi": 2.5}[cell.encoding] + n / 100  # noqa: E731
    planned = plan(tasks=["language"], contrast=[["nope", "rope"]])
    found = analysis.analyse(contents(planned, bits, "sliding"))
    rows = {row.encoding: row for row in found.rows}
    assert rows["nope"].value.value == pytest.approx(2 + mean((12, 15, 20)) / 100)
    assert (rows["nope"].bits, rows["nope"].below, rows["nope"].undertrained) == (True, None, [])
    assert found.contrasts[0].difference.value == pytest.approx(1)


def test_the_metric_at_a_length_takes_that_length_alone():
    found = analysis.analyse(
        contents(plan(metric="at 1.2"), lambda cell, n: 0.5 if n == 12 else 1.0)
    )
    assert {row.value.value for row in found.rows} == {0.5}


def test_another_protocol_is_read_where_it_is_asked_for():
    found = analysis.analyse(contents(plan(), falling), protocol="forced")
    assert "forced" in found.stamp
    assert "no ranking claims" in found.stamp
    assert not any(contrast.decided for contrast in found.contrasts)
    with refused(PlanError, "'nonsense'"):
        analysis.analyse(contents(plan(), falling), protocol="nonsense")
    assert {(row.protocol, row.value.value) for row in found.rows} == {("forced", 1.0)}


def test_cropping_to_l_has_a_row_of_its_own():
    planned = plan(["nope", "rope"], tasks=["language"], metric="at 2.0")
    held = contents(planned, lambda cell, n: 2.0 + n / 100 + cell.seed / 10, "sliding")
    assert analysis.analyse(held).baselines == []
    for record in held.records.values():
        alone = torch.full((PROMPTS,), 2.0 + record.cell.seed / 100)
        record.outcomes["cropped", 20] = Outcome.of(alone)
    found = analysis.analyse(held)
    assert [row.encoding for row in found.baselines] == ["nope cropped", "rope cropped"]
    assert found.baselines[0].value.value == pytest.approx(2.035)  # the mean of 2.01 … 2.06
    assert [row.encoding for row in found.only(encoding=["rope"]).baselines] == ["rope cropped"]
    assert found.rows[0].value.value == pytest.approx(2.55)


def test_the_gate_is_at_n_l_and_asks_each_seed():
    """A mean over all n ≤ L, or over seeds, would let 86 % at n = L pass."""
    weak = lambda cell, n: 0.86 if (n, cell.seed) == (TRAINED, 3) else falling(cell, n)  # noqa: E731
    planned = plan(seeds=7, contrast=[["nope", "rope"]])
    found = analysis.analyse(contents(planned, weak))
    assert [row.undertrained for row in found.rows] == [[3]] * 3
    assert min(row.in_range for row in found.rows) > 0.95
    assert [one.verdict for one in found.contrasts] == ["undertrained: nope, rope"]


def test_the_area_stands_beside_a_metric_at_one_length():
    at_one = lambda cell, n: 0.5 if n == 12 else falling(cell, n)  # noqa: E731
    held = contents(plan(metric="at 1.2"), at_one)
    row = analysis.analyse(held).rows[0]
    assert row.area.value == pytest.approx(mean(row.means[n] for n in (12, 15, 20)))
    assert analysis.analyse(contents(plan(), at_one)).rows[0].area is None


def test_a_metric_is_at_its_length_and_at_no_other():
    """1.35 of 8 is 10.8, which is not 11."""
    assert analysis.lengths_of("at 1.35", 8, range(1, 20)) == []
    assert analysis.lengths_of("at 1.1", 10, range(1, 20)) == [11]


def test_shares_of_tokens_are_no_bits():
    held = contents(plan(), falling)
    for record in held.records.values():
        for n in LENGTHS:
            record.outcomes["tokens", n] = Outcome.of(torch.full((PROMPTS,), 0.75))
    row = analysis.analyse(held, protocol="tokens").rows[0]
    assert (row.bits, row.value.value) == (False, 0.75)


def test_what_is_within_the_plans_margin_is_equal_by_its_own_test():
    """Never for want of a difference: as noisy as large ones, small ones show nothing."""
    near = lambda cell, n: 0.5 + {"rope": 0.025}.get(cell.encoding, 0.0) * (cell.seed % 2)  # noqa: E731
    far = lambda cell, n: 0.5 + {"rope": 0.4}.get(cell.encoding, 0.0) * (-1) ** cell.seed  # noqa: E731
    sides = [["nope", "rope"]]
    for margin, shares, equal in ((None, near, None), (0.05, near, True), (0.05, far, False)):
        asked = {} if margin is None else {"margin": margin}
        planned = plan(contrast=sides, **asked)
        (one,) = analysis.analyse(contents(planned, shares)).contrasts
        assert (None if one.equal is None else one.equal < 0.05) == equal
        assert one.adjusted > 0.05


def test_a_contrast_may_be_with_the_cropped_reading_of_a_model():
    planned = plan(tasks=["language"], contrast=[["alibi", "rope cropped"]])
    held = contents(planned, lambda cell, n: 2.0 + n / 100, "sliding")
    for record in held.records.values():
        for n in LENGTHS:
            record.outcomes["cropped", n] = Outcome.of(torch.full((PROMPTS,), 2.05))
    (one,) = analysis.analyse(held).contrasts
    assert one.difference.value == pytest.approx(2.05 - (2 + mean((12, 15, 20)) / 100))


def test_a_failed_seed_is_named_and_its_pairs_are_left_out():
    planned = plan(seeds=7, contrast=[["nope", "rope"]])
    found = analysis.analyse(contents(planned, falling, failures={("rope", 2)}))
    rows = {row.encoding: row for row in found.rows}
    assert rows["rope"].failures == {2: "the loss of step 5 is nan"}
    assert rows["rope"].seeds == found.contrasts[0].seeds == [1, 3, 4, 5, 6, 7]


def test_a_study_that_has_just_begun_has_rows_without_numbers():
    planned = plan(contrast=[["nope", "rope"]])
    found = analysis.analyse(Contents([(planned.digest, planned.text)], [], {}, {}))
    assert (found.done, found.of, found.stamp) == (0, 18, "0 seeds: no ranking claims")
    assert [row.value for row in found.rows] == [None] * 3
    assert found.contrasts[0].verdict == "no paired seeds yet"


def test_a_store_without_a_plan_has_rows_of_all_its_cells():
    held = contents(plan(seeds=2), falling)
    found = analysis.analyse(Contents([], [], {}, held.records))
    assert [row.encoding for row in found.rows] == ["nope", "rope", "alibi"] or found.rows
    assert (found.done, found.of) == (6, 6)


def test_lengths_that_the_task_says_are_those_of_the_cells():
    """The plan leaves them out; the cells that were run have them said."""
    planned = Plan.of({"tasks": ["copy"], "encodings": ["nope"], "profile": asdict(SMALL)})
    cells = [replace(cell, trained=20, tested=(20, 40)) for cell in planned.cells()]
    outcomes = {("generated", n): right(1.0) for n in (20, 40)}
    records = {c.digest: Record.of(c, Result(outcomes, (1.0,), 1, 0.1)) for c in cells}
    found = analysis.analyse(Contents([(planned.digest, planned.text)], [], {}, records))
    assert (found.done, found.rows[0].value.value) == (6, 1)


def test_a_cell_of_another_plan_in_the_store_is_no_row():
    planned = plan(encodings=["nope"])
    held = contents(planned, falling)
    other = Cell("copy", "rope", 1, profile=SMALL)
    record = Record.of(other, Result({("generated", 20): right(1.0)}, (), 1, 0.1))
    found = analysis.analyse(replace(held, records=held.records | {other.digest: record}))
    assert [row.encoding for row in found.rows] == ["nope"]


def test_some_rows_can_be_asked_for_and_keep_their_numbers():
    planned = plan(tasks=["copy", "reverse"], contrast=[["nope", "rope"], ["nope", "alibi"]])
    found = analysis.analyse(contents(planned, falling))
    some = found.only(task=["reverse"], encoding=["nope", "alibi"])
    assert [(row.task, row.encoding) for row in some.rows] == [
        ("reverse", "nope"),
        ("reverse", "alibi"),
    ]
    assert [(one.task, one.other) for one in some.contrasts] == [("reverse", ("alibi",))]
    assert some.stamp == found.stamp


@pytest.mark.parametrize(
    ("contrasts", "seeds", "able"), [(1, 6, True), (2, 6, False), (2, 7, True)]
)
def test_too_few_seeds_for_so_many_contrasts_are_said(contrasts, seeds, able):
    """All signs agree, so that p is the least there is: does Holm's stay below 0.05?"""
    pairs = [["nope", "rope"], ["alibi", "rope"]][:contrasts]
    found = analysis.analyse(contents(plan(seeds=seeds, contrast=pairs), falling))
    for one in found.contrasts:
        assert (one.adjusted < 0.05) == able
        assert one.verdict == ("" if able else "6 seeds cannot decide 2 contrasts: 7 can")


def test_the_rate_of_a_row_is_its_best_within_the_trained_length():
    """Uses trials only; outcomes beyond L and other seeds would give another choice."""
    planned = plan(["nope", "rope"], rates=[1e-3, 2e-3, 4e-3], rate_seeds=1)
    best = {"nope": 2e-3, "rope": 4e-3}
    records = {}
    for cell in [*planned.trials(), *planned.cells(best | {})]:
        share = 0.9 if cell.profile.rate == best[cell.encoding] else 0.5
        tried = replace(cell, tested=(5, 10)) if cell.seed > 10_000 else cell
        outcomes = {("generated", n): right(share) for n in tried.tested}
        records[tried.digest] = Record.of(tried, Result(outcomes, (1.0,), 100, 0.5))
    held = Contents([(planned.digest, planned.text)], [], {}, records)
    chosen = analysis.chosen_rates(planned, held)
    assert chosen == {("copy", name): rate for name, rate in best.items()}
    found = analysis.analyse(held)
    assert [row.rate for row in found.rows] == [2e-3, 4e-3]
    assert found.of == 12
    trial = next(digest for digest, one in records.items() if one.cell.seed > 10_000)
    some = {digest: one for digest, one in records.items() if digest != trial}
    assert len(analysis.chosen_rates(planned, replace(held, records=some))) == 1


def test_a_rate_that_is_not_chosen_yet_is_none_and_no_rate_of_the_profile():
    """Before its trials are done, a row has the rate of no cell."""
    planned = plan(["nope", "rope"], rates=[1e-3, 2e-3, 4e-3], rate_seeds=1)
    held = Contents([(planned.digest, planned.text)], [], {}, {})
    found = analysis.analyse(held)
    assert [row.rate for row in found.rows] == [None, None]
    assert found.profile is None
    assert found.steps == planned.profile.steps


CONTROLLED = {
    "encodings": [
        "nope",
        {"name": "rope", "encoding": "rope"},
        {"name": "slow", "encoding": "rope", "profile": {"rate": 2e-4}},
        {"name": "taught", "encoding": "alibi", "trained": 40},
    ],
    "tasks": ("copy-unique", "copy-repeat"),
    "seeds": 7,
    "positive": "taught",
    "negative": "rope",
    "withdraw": "NoPE copies less than RoPE.",
}


def by_hand(contents, task, label, lengths):
    """The mean of each seed over some lengths, in the order of seeds."""
    runs = {
        record.cell.seed: [
            outcome.values.double().mean().item()
            for (protocol, n), outcome in record.outcomes.items()
            if protocol == "generated" and n in lengths
        ]
        for record in contents.records.values()
        if (record.cell.task, record.cell.name) == (task, label)
    }
    return [sum(runs[seed]) / len(runs[seed]) for seed in sorted(runs)]


def test_a_difference_of_differences_across_tasks_is_paired_by_seed():
    terms = ["copy-unique: nope", "copy-unique: rope", "copy-repeat: nope", "copy-repeat: rope"]
    contents = made_studies.study(made_studies.plan(**CONTROLLED, contrast=[terms]))
    (found,) = analysis.analyse(contents).contrasts
    sides = [by_hand(contents, *term.split(": "), (24, 28, 32, 40)) for term in terms]
    expected = [a - b - (c - d) for a, b, c, d in zip(*sides, strict=True)]
    assert found.by_seed == pytest.approx(expected)
    assert found.task == "copy-unique, copy-repeat"


def test_a_row_is_compared_with_itself_at_another_length():
    terms = [["copy-unique: nope at 24", "copy-unique: nope at 32"]]
    contents = made_studies.study(made_studies.plan(**CONTROLLED, contrast=terms))
    (found,) = analysis.analyse(contents).contrasts
    near, far = (by_hand(contents, "copy-unique", "nope", (n,)) for n in (24, 32))
    assert found.by_seed == pytest.approx([a - b for a, b in zip(near, far, strict=True)])


def test_a_row_that_was_trained_on_longer_texts_is_measured_where_the_others_are():
    contents = made_studies.study(made_studies.plan(**CONTROLLED))
    row = next(row for row in analysis.analyse(contents).rows if row.encoding == "taught")
    assert row.trained == 20
    expected = by_hand(contents, "copy-unique", "taught", (24, 28, 32, 40))
    assert row.by_seed == pytest.approx(expected)


@pytest.mark.parametrize(
    ("positive", "negative", "asked"), [("taught", "rope", True), ("rope", "taught", False)]
)
def test_nothing_is_decided_where_the_positive_control_shows_no_gain(positive, negative, asked):
    """ALiBi is trained up to 40 in the outcomes that are made up, so that it gains."""
    controls = CONTROLLED | {"positive": positive, "negative": negative}
    planned = made_studies.plan(**controls, contrast=[["nope", "rope"]])
    result = analysis.analyse(made_studies.study(planned))
    assert [bool(analysis.refusal(control)) for control in result.controls] == [not asked] * 2
    assert all(("cannot be decided here" in x.verdict) is not asked for x in result.contrasts)
    assert [x.decided for x in result.contrasts] == [asked] * 2


def test_a_pilot_is_no_evidence():
    planned = made_studies.plan(**CONTROLLED, contrast=[["nope", "rope"]])
    contents = made_studies.study(planned)
    marked = replace(contents, sources={**contents.sources, "pilot": "not evidence"})
    result = analysis.analyse(marked)
    assert result.stamp == "pilot: not evidence"
    assert not any(contrast.decided for contrast in result.contrasts)
    assert any(contrast.decided for contrast in analysis.analyse(contents).contrasts)
