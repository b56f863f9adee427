"""Predictions by properties against numpy's least squares, family by family, with rows that are the
ridge, against places counted in a loop, and against outcomes that were put in.
"""

from dataclasses import asdict, replace
from functools import cache

import made_studies
import numpy as np
import pytest
import torch
from refusals import refused

from posenc.catalog import create
from posenc.lab.study.analysis import analyse
from posenc.lab.study.cell import Profile, Result
from posenc.lab.study.plan import Plan
from posenc.lab.study.store import Contents, Record
from posenc.properties import check
from studies.questions import prediction
from studies.questions.prediction import doubles, predict, ranks, spearman, without_family

NAMES = ["nope", "rope", "p-rope", "alibi", "t5", "kerple", "sinusoidal", "shaw"]
PROMPTS = 100


def places(values):
    """The mean of the places that equal numbers take in their order, from 1 on."""
    ordered = sorted(values)
    return np.array([np.mean([n for n, y in enumerate(ordered, 1) if y == x]) for x in values])


def by_hand(ticks, outcome, families):
    """Least squares, once a family, on whitened rows below which the ridge stands as more rows."""
    fitted = np.empty(len(outcome))
    for family in set(families):
        out = np.array([one == family for one in families])
        columns, held = [], []
        for column in ticks.T:
            known = column[~out][~np.isnan(column[~out])]
            if len(set(known)) < 2:
                continue
            center, width = known.mean(), known.std()
            whiten = [0.0 if np.isnan(x) else (x - center) / width for x in column]
            columns.append(np.array(whiten)[~out])
            held.append(np.array(whiten)[out])
        x, y = np.array(columns).T, places(outcome[~out])
        ridge = np.sqrt(len(x)) * np.eye(x.shape[1])
        rows = np.concatenate([x, ridge]), np.concatenate([y - y.mean(), np.zeros(len(ridge))])
        weights = np.linalg.lstsq(*rows, rcond=None)[0]
        fitted[out] = y.mean() + np.array(held).T @ weights
    return fitted


def test_each_family_is_fitted_by_the_others():
    random = np.random.default_rng(0)
    ticks = random.integers(0, 2, (12, 5)).astype(float)
    ticks[3, 1] = ticks[7, 4] = float("nan")
    ticks[:, 2] = 1  # all have it, so it carries no information
    outcomes, families = random.random((12, 3)), ["a", "b", "c", "d"] * 3
    found = without_family(torch.tensor(ticks), torch.tensor(outcomes), families)
    wanted = [by_hand(ticks, column, families) for column in outcomes.T]
    torch.testing.assert_close(found, torch.tensor(np.array(wanted).T), rtol=1e-9, atol=1e-9)


def test_correlation_is_that_of_places_in_order():
    x = torch.tensor([[1.0, 3.0, 3.0, 2.0, 7.0, 3.0], [5.0, 1.0, 1.0, 5.0, 2.0, 9.0]]).T
    for column in range(2):
        np.testing.assert_array_equal(ranks(x)[:, column], places(x[:, column].tolist()))
    wanted = np.corrcoef(places(x[:, 0].tolist()), places(x[:, 1].tolist()))[0, 1]
    assert spearman(x[:, :1], x[:, 1:]).item() == pytest.approx(wanted, abs=1e-12)
    assert spearman(torch.ones(6, 1), x[:, :1]).item() == 0


@pytest.fixture(autouse=True)
def measured_once(monkeypatch):
    """Properties take a second an encoding: they are measured once in this file."""
    monkeypatch.setattr(prediction, "_properties", lambda cell: measure(cell.encoding))


@cache
def measure(name):
    return check(create(name, 16, 4), 16, 4, 64, causal=True)


def stored(share, encodings=NAMES, seeds=3):
    """Make a store of copying: all right within L, and beyond it the share `share(name)`."""
    profile = Profile(steps=5, prompts=PROMPTS, width=64, heads=4)
    content = {"tasks": ["copy"], "encodings": encodings, "profile": asdict(profile)}
    plan = Plan.of(content | {"trained": 10, "tested": [10, 12, 20], "seeds": seeds})
    records = {}
    for cell in plan.cells():
        beyond = share(cell.encoding) - 0.01 * cell.seed
        right = {n: torch.arange(PROMPTS) < PROMPTS * (1 if n == 10 else beyond) for n in (10, 12)}
        result = Result({("generated", n): bits for n, bits in right.items()}, (1.0,), 100, 0.5)
        records[cell.digest] = replace(Record.of(cell, result), seconds=0.01)
    return Contents([(plan.digest, plan.text)], [], {}, records)


def test_what_a_property_decides_is_foretold():
    """Encodings whose scores fall with distance were made to do well, by how far they fall."""
    falling = {"alibi": 0.9, "kerple": 0.85}
    apart = lambda name: 0.15 + 0.025 * NAMES.index(name)  # noqa: E731
    contents = stored(lambda name: falling.get(name, apart(name)))
    (found,) = predict(contents, analyse(contents))
    first = found.effects[0]
    assert first.property == "decaying"
    assert {*first.having} == {*falling}
    assert first.correlation > 0.7
    assert (found.task, found.encodings, len(found.predicted)) == ("copy", NAMES, len(NAMES))
    assert found.correlation.low <= found.correlation.value <= found.correlation.high


def test_of_outcomes_that_nothing_decides_p_is_spread_evenly():
    """40 shufflings of the outcomes: some one in two has p below 0.5, one in twenty below 0.05."""
    contents = stored(lambda name: 0.05 * NAMES.index(name) + 0.2)
    whole = analyse(contents)
    seen = []
    for seed in range(40):
        order = torch.randperm(len(NAMES), generator=torch.Generator().manual_seed(seed)).tolist()
        rows = [replace(whole.rows[a], by_seed=whole.rows[b].by_seed) for a, b in enumerate(order)]
        seen.append(predict(contents, replace(whole, rows=rows), seed)[0].p)
    assert 0.3 < np.mean(np.array(seen) < 0.5) < 0.7
    assert np.mean(np.array(seen) < 0.05) < 0.2


def test_fewer_bits_are_better():
    apart = lambda name: 0.025 * NAMES.index(name)  # noqa: E731
    contents = stored(lambda name: apart(name) + (0.7 if name in ("alibi", "kerple") else 0.2))
    whole = analyse(contents)
    rows = [replace(row, bits=True) for row in whole.rows]
    (found,) = predict(contents, replace(whole, rows=rows))
    assert next(one for one in found.effects if one.property == "decaying").correlation < 0
    assert found.outcome == pytest.approx([np.mean(row.by_seed) for row in rows])


def test_encodings_that_come_out_alike_with_each_seed_count_once():
    assert doubles([[3.0, 4.0], [3.004, 4.005], [3.0, 4.2], [2.0, 2.0]]) == [[0, 1], [2], [3]]
    assert doubles([[0.0, 0.0], [0.0, 0.0], [1.0, 1.0]]) == [[0], [1], [2]]  # at the floor
    contents = stored(
        lambda name: 0.3 + 0.05 * NAMES.index(name) * (name != "p-rope") + 0.05 * (name == "p-rope")
    )
    (found,) = predict(contents, analyse(contents))
    assert found.encodings == ["nope", "rope = p-rope", *NAMES[3:]]
    assert len(found.predicted) == len(found.outcome) == len(NAMES) - 1


def test_too_few_encodings_are_refused():
    contents = stored(lambda name: 0.5, encodings=["nope", "rope", "alibi", "t5"])
    with refused(ValueError, 6, 4, "`encodings`"):
        predict(contents, analyse(contents))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"encoding": "rop"}, ["'rope'", "'rop'"]),
        ({"options": {"theta": "x"}}, ["'rope'"]),
        ({"options": {"odd": 1}}, ["'rope'", "RoPE", "`odd`"]),
        ({"profile": Profile(width=2**16, heads=3)}, ["'rope'"]),
    ],
)
def test_an_encoding_that_cannot_be_made_is_named(monkeypatch, change, said):
    """Names that a store of a stranger could have."""
    monkeypatch.setattr(prediction, "_properties", prediction.encoding_of)
    names = ("nope", "rope", "p-rope", "alibi", "kerple", "sinusoidal")
    held = made_studies.study(made_studies.plan(names, seeds=1))
    cells = [
        replace(record.cell, **change if record.cell.encoding == "rope" else {})
        for record in held.records.values()
    ]
    pairs = zip(cells, held.records.values(), strict=True)
    records = {cell.digest: replace(record, cell=cell) for cell, record in pairs}
    odd = replace(held, plans=[], records=records)
    with refused(ValueError, *said) as raised:
        predict(odd, analyse(odd))
    assert "\n" not in str(raised.value)
