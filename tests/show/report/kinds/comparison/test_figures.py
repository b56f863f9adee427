"""Marks against the comparison that they are drawn from."""

import io
from dataclasses import replace

import pytest
import torch
from rich.console import Console

from posenc.show.report.drawing.data_table import data_table
from posenc.show.report.kinds.comparison import figures, phrases, terminal


def test_every_property_of_every_encoding_is_marked_once(everything):
    figure = figures.properties(everything)
    marks = {mark.name: set(zip(mark.x, mark.y, strict=True)) for mark in figure.panels[0].marks}
    for y, measured in enumerate(everything.encodings):
        for x, finding in enumerate(measured.properties.values()):
            word = {True: "holds", False: "does not", None: "not applicable"}[finding.holds]
            assert [name for name, places in marks.items() if (x, y) in places] == [word]
    listed = data_table(figure)
    assert listed.heading[1:] == [name.replace("_", " ") for name in measured.properties]
    assert [row[0] for row in listed.rows] == [m.name for m in everything.encodings]


def test_the_slowest_is_named_and_nope_is_only_the_measure(everything):
    says = figures.costs(everything).says
    slowest = max(everything.encodings, key=lambda m: m.cost_ratio["training"])
    assert f"with {slowest.name}, the slowest" in says or slowest.slug == "nope"
    assert "with NoPE" not in says


def test_who_is_blind_to_the_order_is_named(everything):
    assert "Without a mask these cannot: NoPE, RePo." in figures.order(everything).says


def test_curves_leave_out_the_token_itself_and_the_words(everything):
    """The figure has the score minus the score of NoPE, for means the difference of means."""
    by_slug = {m.slug: m for m in everything.encodings}
    plain = by_slug["nope"].curve.mean[1:]
    shown = [m for m in everything.encodings if m.slug != "nope"]
    for panel, measured in zip(figures.curves(everything).panels, shown, strict=True):
        line = panel.marks[-1]
        assert line.x[0] == 1
        taken = [a - b for a, b in zip(measured.curve.mean[1:], plain, strict=True)]
        size = max(map(abs, [*measured.curve.mean, *taken]))
        assert line.y == pytest.approx(taken, abs=1e-5 * size)


def test_biases_of_distance_are_fans_of_their_heads(everything, small):
    """ALiBi adds −m δ, with slopes m of 2^(−8 h/H): its formula, head by head."""
    panels = {panel.title: panel for panel in figures.curves(everything).panels}
    fan = [mark for mark in panels["ALiBi"].marks if mark.name == "each head"]
    assert len(fan) == small.heads
    for head, mark in enumerate(fan, start=1):
        slope = 2 ** (-8 * head / small.heads)
        assert mark.y == pytest.approx([-slope * at for at in mark.x], rel=1e-4)


def test_a_family_has_one_scale_but_for_what_is_far_wider(everything):
    scales = {}
    shown = [m for m in everything.encodings if m.slug != "nope"]
    for panel, measured in zip(figures.curves(everything).panels, shown, strict=True):
        scales.setdefault(measured.family, set()).add(panel.y_range)
        if panel.y_range:
            assert panel.y_range[0] <= min(measured.effect.low[1:])
            assert panel.y_range[1] >= max(measured.effect.high[1:])
    assert all(len(found - {None}) == 1 for found in scales.values())


def test_every_encoding_but_none_has_a_portrait(everything):
    """Biases too: ALiBi's first head is its slope times the distance."""
    drawn = figures.rows(everything)
    names = [panel.title.partition(" (")[0].partition(",")[0] for panel in drawn.panels]
    assert names == [m.name for m in everything.encodings if m.slug != "nope"]
    cells = drawn.panels[names.index("ALiBi")].marks[0].z
    assert cells[0][:4] == pytest.approx([0, -1 / 16, -2 / 16, -3 / 16], abs=1e-5)


def test_what_learns_is_marked_and_never_ranked_with_what_does_not(everything):
    learns = {m.name for m in everything.encodings if m.properties["learned"].holds}
    marked = {m.name for m in everything.encodings if m.untrained}
    assert marked == learns
    names = figures.order(everything).panels[0].y_names
    assert [name.endswith(", untrained") for name in names] == sorted(
        name.endswith(", untrained") for name in names
    )
    assert not any(f" {name}," in figures.curves(everything).says for name in learns)


def test_the_order_is_sorted_and_joined_from_value_to_value(everything):
    for panel in figures.order(everything).panels:
        joined, plain, causal = panel.marks[:3]
        assert panel.x_range[0] == 0
        assert [*joined.x[::3]] == plain.x
        assert [*joined.x[1::3]] == causal.x
    first = figures.order(everything).panels[0].marks[1].x
    fixed = sum(not m.untrained for m in everything.encodings)
    assert first[:fixed] == sorted(first[:fixed], reverse=True)
    assert first[fixed:] == sorted(first[fixed:], reverse=True)


def test_a_busy_machine_is_named_by_its_waiting_and_no_number_is_withheld(everything):
    """The share is that of the measurement; the ratios are printed for any share."""
    quiet, busy = (replace(everything, waited=share) for share in (0.02, 0.81))
    assert "waited" not in phrases.timing(quiet)
    assert "waited for a processor 81%" in phrases.timing(busy)
    for result in (quiet, busy):
        console = Console(file=io.StringIO(), width=80)
        terminal.print_comparison(result, console)
        lines = console.file.getvalue().splitlines()
        table = lines[next(n for n, line in enumerate(lines) if "cost over NoPE" in line) :]
        for measured in result.encodings:
            (line,) = [line for line in table if line.startswith(f"{measured.name} ")][:1]
            training = measured.cost.training_ratio
            digits = 0 if training.median >= 10 else 1
            numbers = [f"{x:.{digits}f}" for x in (training.median, training.low, training.high)]
            assert "{} [{}, {}]".format(*numbers) in line
            assert measured.cost_ratio["training"] == training.median


def test_cost_against_length_is_drawn_of_all_as_multiples_of_nope(everything, small):
    """Ratios, and quotients of bytes, formed here; where an encoding ends, its line does."""
    figure, alone = figures.lengths(everything), everything.nope_by_length
    shown = [m for m in everything.encodings if m.slug != "nope"]
    assert [panel.title for panel in figure.panels] == [m.name for m in shown]
    for panel, measured in zip(figure.panels, shown, strict=True):
        _, interval, time, memory = panel.marks
        for n, (one, nope) in enumerate(zip(measured.cost_by_length, alone, strict=True)):
            assert interval.x[n] == time.x[n] == memory.x[n] == one.tokens
            if one.seconds is None:
                assert time.y[n] is memory.y[n] is interval.low[n] is interval.high[n] is None
            else:
                assert memory.y[n] == one.memory / nope.memory
                taken = interval.low[n], time.y[n], interval.high[n]
                assert taken == (one.ratio.low, one.ratio.median, one.ratio.high)
                assert panel.y_range[0] < min(*taken, memory.y[n])
                assert panel.y_range[1] > max(*taken, memory.y[n])


def test_the_length_that_costs_are_compared_at_is_the_same_in_both_figures(everything, small):
    for measured in everything.encodings:
        (one,) = [x for x in measured.cost_by_length if x.tokens == small.cost_tokens]
        assert (one.seconds, one.memory) == (measured.cost.forward, measured.cost.forward_memory)


def test_whose_cost_grows_most_is_said_only_where_the_intervals_are_apart(everything):
    """Two encodings made up: one that grows from 1 to 8 times NoPE, one that stays and ends."""
    old = everything.encodings[1].cost_ratio_by_length
    grows = [
        replace(one, time=t, low=0.9 * t, high=1.1 * t, memory=1.0)
        for one, t in zip(old, (1.0, 4.0, 8.0), strict=True)
    ]
    level = [replace(one, time=1.0, low=0.9, high=1.1, memory=1.0) for one in old]
    level[-1] = replace(level[-1], time=None, low=None, high=None, memory=None)
    costly, ends = (
        replace(everything.encodings[1], name=name, cost_ratio_by_length=found)
        for name, found in (("Costly", grows), ("Ends", level))
    )
    said = phrases.growth(replace(everything, encodings=[ends, costly]))
    for fact in ("from 2 to 32 tokens", "time of Costly, from 1 × to 8 × NoPE."):
        assert fact in said
    assert said.endswith(" Ends: refused at 32 tokens.")
    wide = [replace(one, low=0.2 * one.time, high=9 * one.time) for one in grows]
    unsure = replace(costly, cost_ratio_by_length=wide)
    assert "time of" not in phrases.growth(replace(everything, encodings=[unsure]))
    assert "none beyond the noise. Ends" in phrases.growth(replace(everything, encodings=[ends]))


def test_pictures_of_vectors_say_their_width(everything):
    """The sizes that card.make gives them: 64 channels, but for PoPE, which doubles them."""
    everything = replace(
        everything, encodings=[m for m in everything.encodings if m.slug != "pope"]
    )
    figure = figures.rows(everything)
    assert "64 channels ↓" in figure.says
    narrow = [
        replace(m, rows=[row[:32] for row in m.rows]) if m.slug == "sinusoidal" else m
        for m in everything.encodings
    ]
    titles = [panel.title for panel in figures.rows(replace(everything, encodings=narrow)).panels]
    assert any(title.startswith("Sinusoidal, 32 channels") for title in titles)
    assert any(title.startswith("RoPE, 64 channels") for title in titles)


def test_costs_are_drawn_as_multiples_of_the_layer_without_positions(everything):
    """Ratios and bytes over those of NoPE; the strokes end where the intervals do."""
    marks = {mark.name: mark for mark in figures.costs(everything).panels[0].marks if
             getattr(mark, "name", "")}  # fmt: skip
    nope = everything.nope_cost
    for key, name in (("forward", "time, forward"), ("training", "time, training")):
        expected = [getattr(m.cost, f"{key}_ratio").median for m in everything.encodings]
        assert marks[name].x == expected
    bytes_of = [m.cost.training_memory / nope.training_memory for m in everything.encodings]
    assert marks["memory, training"].x == pytest.approx(bytes_of)
    _, strokes, *_ = figures.costs(everything).panels[0].marks
    first = everything.encodings[0].cost.forward_ratio
    assert strokes.x[:3] == [first.low, first.high, None]


def test_pictures_are_rows_heads_or_scores(everything):
    """Sinusoidal: sin and cos; RoPE: rotated ones; T5: its table; Shaw: scores."""
    drawn = figures.rows(everything).panels
    cells = {panel.title.partition(" (")[0].partition(",")[0]: panel.marks[0].z for panel in drawn}
    at, theta = torch.arange(64).double(), 10_000.0 ** (-torch.arange(32).double() / 32)
    angle = theta.unsqueeze(-1) * at  # (pair, position)
    sinusoidal = torch.tensor(cells["Sinusoidal"]).double()
    torch.testing.assert_close(sinusoidal[::2], angle.sin(), atol=1e-3, rtol=0)
    torch.testing.assert_close(sinusoidal[1::2], angle.cos(), atol=1e-3, rtol=0)
    rope = torch.tensor(cells["RoPE"]).double()
    torch.testing.assert_close(rope[::2], angle.cos() - angle.sin(), atol=1e-3, rtol=0)
    torch.testing.assert_close(rope[1::2], angle.cos() + angle.sin(), atol=1e-3, rtol=0)
    by_slug = {m.slug: m for m in everything.encodings}
    for head, drawn_head in zip(by_slug["t5"].effect.heads, cells["T5"], strict=True):
        assert drawn_head == pytest.approx(head, rel=1e-4)  # five digits
    for query, drawn_row in zip(by_slug["shaw"].added, cells["Shaw"], strict=True):
        assert drawn_row == pytest.approx(query, rel=1e-4)


def test_a_card_shows_the_picture_and_the_effect_of_its_encoding(everything):
    for measured in everything.encodings:
        panels = figures.card(everything, measured).panels
        line = panels[-1].marks[-1]
        assert line.y == measured.effect.mean[1:]
        assert len(panels) == 1 + (measured.slug != "nope")
