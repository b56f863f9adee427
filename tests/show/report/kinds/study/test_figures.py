"""Figures of a study against the outcomes that were put into its store."""

from statistics import fmean

import pytest
from made_studies import FALL, LENGTHS, TRAINED, plan, study

from posenc.lab.study.analysis import analyse
from posenc.lab.study.published import published
from posenc.show.report.drawing.marks import Line, Points, Rule
from posenc.show.report.kinds.study import figures


def drawn(contents):
    found = analyse(contents)
    return found, found.rows


def right(contents, encoding, seed, n):
    """The share of right answers of a cell, counted bit by bit."""
    (record,) = (
        one
        for one in contents.records.values()
        if (one.cell.name, one.cell.seed) == (encoding, seed)
    )
    values = record.outcomes["generated", n].values.tolist()
    return sum(values) / len(values)


def marks(panel, kind, name):
    return [mark for mark in panel.marks if isinstance(mark, kind) and mark.name == name]


def test_lines_are_means_and_points_are_seeds():
    contents = study(plan())
    figure = figures.lengths(drawn(contents)[1])
    assert figure is not None
    (panel,) = figure.panels
    for name in FALL:
        (line,), (points,) = marks(panel, Line, name), marks(panel, Points, name)
        expected = {n: [right(contents, name, seed, n) for seed in range(1, 7)] for n in LENGTHS}
        assert line.x == [*LENGTHS]
        assert line.y == pytest.approx([100 * fmean(values) for values in expected.values()])
        for n, values in expected.items():
            there = [y for x, y in zip(points.x, points.y, strict=True) if x == n]
            assert there == pytest.approx([100 * value for value in values])
    rules = {mark.at for mark in panel.marks if isinstance(mark, Rule)}
    assert rules == {TRAINED, 2 * TRAINED}


def test_the_caption_says_how_far_means_go_at_twice_the_length_and_ranks_nothing():
    contents = study(plan())
    figure = figures.lengths(drawn(contents)[1])
    means = {name: fmean(right(contents, name, seed, 40) for seed in range(1, 7)) for name in FALL}
    least, most = (100 * pick(means.values()) for pick in (min, max))
    assert f"the means go from {least:.1f}% to {most:.1f}%." in figure.says
    assert not any(name in figure.says for name in FALL)
    assert "means over 6 seeds" in figure.says


def test_every_seed_stands_beside_its_mean_and_interval():
    contents = study(plan())
    found, rows = drawn(contents)
    figure = figures.seeds(rows, found.metric)
    assert figure is not None
    panel = figure.panels[0]
    (points,), (mean,) = marks(panel, Points, "one seed"), marks(panel, Points, "mean")
    assert panel.y_names == [row.encoding for row in rows]
    for n, name in enumerate(panel.y_names):
        areas = [
            fmean(right(contents, name, seed, length) for length in LENGTHS if length > TRAINED)
            for seed in range(1, 7)
        ]
        there = [x for x, y in zip(points.x, points.y, strict=True) if y == n]
        assert there == pytest.approx([100 * area for area in areas])
        assert mean.x[n] == pytest.approx(100 * fmean(areas))


def test_contrasts_are_differences_of_paired_seeds_in_the_unit_of_their_task():
    pairs = [["nope", "rope"], [["nope", "alibi"], ["rope", "sinusoidal"]]]
    found, rows = drawn(study(plan(tasks=["copy", "language"], contrast=pairs)))
    for task, scale, sign, unit in (
        ("copy", 100, 1, "difference, percentage points"),
        ("language", 1, -1, "bits saved"),
    ):
        ours = [one for one in found.contrasts if one.task == task]
        figure = figures.contrasts(ours, task == "language")
        assert figure is not None
        (panel,) = figure.panels
        assert panel.y_names == ["nope\n− rope", "nope + alibi\n− rope + sinusoidal"]
        assert panel.x_title == unit
        (points,) = marks(panel, Points, "one seed")
        there = [x for x, y in zip(points.x, points.y, strict=True) if y == 0]
        by_seed = {row.encoding: row.by_seed for row in rows if row.task == task}
        pairs_ = zip(by_seed["nope"], by_seed["rope"], strict=True)
        assert there == pytest.approx([sign * scale * (a - b) for a, b in pairs_])
        assert any(isinstance(mark, Rule) and mark.at == 0 for mark in panel.marks)
        assert "Of 2 intervals" in figure.says
    assert figures.contrasts([], False) is None


def test_published_shapes_stand_beside_and_look_alike():
    rows = drawn(study(plan(encodings=["rope", "nope"])))[1]
    figure = figures.lengths(rows, published("copy"))
    here, there = figure.panels
    for name in ("rope", "nope"):
        (ours,), (theirs, *_) = marks(here, Line, name), marks(there, Line, name)
        assert (ours.colour, ours.dash) == (theirs.colour, theirs.dash)
    (t5, *_) = marks(there, Line, "t5")
    assert (t5.x, t5.y) == ([21, 24, 30], [80, 75, 56])
    assert t5.colour not in {marks(here, Line, name)[0].colour for name in ("rope", "nope")}
    assert "107 M parameters, L = 20" in figure.says
    assert "arXiv:2305.19466" in figure.says
    assert "only the shape can be compared" in figure.says


def test_one_seed_and_none_are_said():
    one = study(plan(seeds=1))
    assert "One seed of each encoding." in figures.lengths(drawn(one)[1]).says
    planned = plan(seeds=1, contrast=[["nope", "rope"]])
    found, rows = drawn(study(planned, missing=[(name, 1) for name in FALL]))
    assert figures.lengths(rows) is None
    assert figures.seeds(rows, found.metric) is None
    assert figures.contrasts(found.contrasts, False) is None


def test_a_failed_encoding_is_left_out_of_the_figures():
    rows = drawn(study(plan(seeds=2), failures=[("rope", 1), ("rope", 2), ("t5", 2)]))[1]
    panel = figures.lengths(rows).panels[0]
    assert marks(panel, Line, "rope") == []
    (points,) = marks(panel, Points, "t5")
    assert len(points.x) == len(LENGTHS)


def test_lengths_far_beyond_are_drawn_by_doublings():
    rows = drawn(study(plan(tested=[10, 20, 40, 80, 160])))[1]
    panel = figures.lengths(rows).panels[0]
    assert panel.x_log
    assert panel.x_ticks == [10, 20, 40, 80, 160]
