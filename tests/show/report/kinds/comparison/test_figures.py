"""Marks against the comparison that they are drawn from."""

from dataclasses import replace

import pytest
import torch

from posenc.show.report.drawing.data_table import data_table
from posenc.show.report.kinds.comparison import figures, words


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
    assert "Without a mask these cannot: NoPE." in figures.order(everything).says


def test_curves_leave_out_the_token_itself_and_the_words(everything):
    """What is drawn is the score less the score of NoPE: of means, the difference of means."""
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


def test_the_noise_is_that_of_the_layer_without_positions(everything):
    area = figures.costs(everything).panels[0].marks[0]
    cost = everything.nope_cost
    ends = [end / cost.forward for end in cost.forward_range]
    ends += [end / cost.training for end in cost.training_range]
    (again,) = [m.cost_ratio for m in everything.encodings if m.slug == "nope"]
    ends += [again["forward"], again["training"]]
    assert (min(area.x), max(area.x)) == pytest.approx((min(ends), max(ends)))
    for spread, busy in ((0.04, False), (0.12, True)):
        halves = {"forward_range": ((1 - spread / 2), (1 + spread / 2)), "forward": 1.0}
        noisy = replace(cost, **halves, training=1.0, training_range=(1.0, 1.0))
        others = [m for m in everything.encodings if m.slug != "nope"]
        result = replace(everything, encodings=others, nope_cost=noisy)
        assert result.busy == busy
        assert ("The machine was busy" in words.noise(result)) == busy
        measured = others[0]
        ratio = None if busy else measured.cost_ratio["training"]
        assert result.multiple(measured, "training") == ratio
        memory = result.multiple(measured, "training_memory")
        assert memory == measured.cost_ratio["training_memory"]
    calm = replace(everything, nope_cost=replace(cost, forward_range=(cost.forward,) * 2))
    (nope,) = [m for m in everything.encodings if m.slug == "nope"]
    assert {calm.multiple(nope, key) for key in words.COSTS} <= {None, 1.0}
    few = replace(everything, nope_cost=replace(cost, rounds=0))
    said = f"Rounds took too long: 0 of {everything.settings.cost_rounds} were timed"
    assert said in words.noise(few)
    assert said not in words.noise(everything)


def test_cost_against_length_is_drawn_of_all_as_multiples_of_nope(everything, small):
    """Quotients of seconds and bytes, formed here; where an encoding ends, its line does."""
    figure, alone = figures.lengths(everything), everything.nope_by_length
    shown = [m for m in everything.encodings if m.slug != "nope"]
    assert [panel.title for panel in figure.panels] == [m.name for m in shown]
    for panel, measured in zip(figure.panels, shown, strict=True):
        noise, _, halves, time, memory = panel.marks
        for n, (one, nope) in enumerate(zip(measured.cost_by_length, alone, strict=True)):
            assert noise.x[n] == time.x[n] == memory.x[n] == one.tokens
            assert [noise.low[n], noise.high[n]] == [end / nope.seconds for end in nope.range]
            if one.seconds is None:
                assert time.y[n] is memory.y[n] is halves.low[n] is halves.high[n] is None
            else:
                assert memory.y[n] == one.memory / nope.memory
                taken = halves.low[n], time.y[n], halves.high[n]
                of = one.range[0], one.seconds, one.range[1]
                assert [v * nope.seconds for v in taken] == pytest.approx(of)
                assert panel.y_range[0] < min(*taken, memory.y[n])
                assert panel.y_range[1] > max(*taken, memory.y[n])


def test_the_length_that_costs_are_compared_at_is_the_same_in_both_figures(everything, small):
    for measured in everything.encodings:
        (one,) = [x for x in measured.cost_by_length if x.tokens == small.cost_tokens]
        assert (one.seconds, one.memory) == (measured.cost.forward, measured.cost.forward_memory)


def test_whose_cost_grows_most_is_said_only_beyond_the_noise(everything):
    """Two encodings made up: one that grows from 1 to 8 times NoPE, one that stays and ends."""
    calm = replace(
        everything.nope_cost,
        forward=1.0, training=1.0, forward_range=(0.99, 1.01), training_range=(0.99, 1.01),
    )  # fmt: skip
    alone = [replace(one, memory=1.0) for one in everything.nope_ratio_by_length]
    grows = [replace(one, time=8.0 ** (n / 4)) for n, one in enumerate(alone)]
    level = [replace(one, time=1.0) for one in alone]
    level[-1] = replace(level[-1], time=None, low=None, high=None, memory=None)
    costly, ends = (
        replace(everything.encodings[1], name=name, cost_ratio_by_length=found)
        for name, found in (("Costly", grows), ("Ends", level))
    )
    quiet = [replace(one, low=1.0, high=1.0) for one in alone]
    everything = replace(everything, nope_ratio_by_length=quiet)
    said = words.growth(replace(everything, encodings=[ends, costly], nope_cost=calm))
    assert said == (
        "What grows from 2 to 32 tokens, over NoPE: time most with Costly, 1 × to 8 × NoPE."
        " Ends: refused at 32 tokens."
    )
    noisy = [replace(one, low=0.3, high=1.2) for one in alone]  # 4 times, at both ends
    unsure = replace(everything, encodings=[costly], nope_cost=calm, nope_ratio_by_length=noisy)
    assert "over NoPE: none beyond the noise." in words.growth(unsure)
    said = words.growth(replace(everything, encodings=[ends], nope_cost=calm))
    assert "over NoPE: none beyond the noise. Ends" in said


def test_pictures_of_vectors_say_their_width(everything):
    """The sizes that card.make gives them: 64 channels, all of them."""
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
    """Seconds and bytes over those of NoPE, and the ends of the strokes the halves of the runs."""
    marks = {mark.name: mark for mark in figures.costs(everything).panels[0].marks if
             getattr(mark, "name", "")}  # fmt: skip
    nope = everything.nope_cost
    for key, name in (("forward", "time, forward"), ("training", "time, training"),
                      ("training_memory", "memory, training")):  # fmt: skip
        expected = [getattr(m.cost, key) / getattr(nope, key) for m in everything.encodings]
        assert marks[name].x == pytest.approx(expected)
    _, _, strokes, *_ = figures.costs(everything).panels[0].marks
    first = everything.encodings[0].cost.forward_range
    assert strokes.x[:3] == [first[0] / nope.forward, first[1] / nope.forward, None]


def test_pictures_are_rows_heads_or_scores(everything):
    """Sinusoidal: sin and cos; RoPE: what it makes of ones; T5: its table; Shaw: scores."""
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
