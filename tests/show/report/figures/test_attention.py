"""Panels against the data from which they are made."""

from dataclasses import replace

import pytest
import torch

from posenc import ALiBi, SelfAttention
from posenc.analysis.decomposition import of_layer
from posenc.analysis.order import Order
from posenc.show.report.figures import attention as figures
from posenc.show.report.figures.attention import _percent


def test_parts_shown_sum_to_the_scores_shown():
    found = of_layer(SelfAttention(16, 2, ALiBi(2)), torch.randn(1, 5, 16))
    figure = figures.decomposition(found, list("abcde"), head=1)
    whole, *parts = [torch.tensor(panel.marks[0].z) for panel in figure.panels]
    assert len(parts) == 2
    assert sum(parts).allclose(whole, atol=1e-4)
    assert len({panel.marks[0].span for panel in figure.panels}) == 1
    titles = [panel.title for panel in figure.panels]
    centred = [part - part.mean(-1, keepdim=True) for part in (whole, *parts)]
    for name, part in zip(found.parts, centred[1:], strict=True):
        share = (part * centred[0]).sum() / centred[0].square().sum()  # of this head alone
        assert f"{name}: {_percent(share.item())}" in titles


def test_how_far_a_token_looks_is_told():
    weights = [[[1, 0, 0], [1, 0, 0], [1, 0, 0]], [[1, None, None], [0, 1, None], [0, 0.5, 0.5]]]
    figure = figures.attention(weights, ["a", "b", "a"])
    assert figure.says.endswith("head 0: 1.0 · head 1: 0.2.")  # (0 + 1 + 2) / 3, (0 + 0 + 0.5) / 3
    assert list(figure.panels[0].x_names) == ["a", "b", "a"]


def test_words_that_stand_twice_are_framed_without_positions_and_with():
    plain, weights = [[[0.5, 0.2, 0.3]] * 3], [[[0.5, 0.2, 0.3], [0, 1, 0], [0.1, 0.2, 0.7]]]
    figure = figures.compared(plain, weights, ["dog", "bites", "dog"])
    assert [panel.title for panel in figure.panels] == [
        "head 0, without positions",
        "head 0, with positions",
    ]
    for panel, layer in zip(figure.panels, (plain, weights), strict=True):
        cells, *frames = panel.marks
        assert (cells.z, cells.digits) == (layer[0], 2)
        assert [(min(frame.y), max(frame.y)) for frame in frames] == [(-0.5, 0.5), (1.5, 2.5)]
    assert "seeded weights" in figure.says
    assert "“dog”, framed, differ by 0.00 at most without, and by 0.40 with." in figure.says
    many = figures.compared(torch.eye(13)[None].tolist(), torch.eye(13)[None].tolist(), ["a"] * 13)
    assert many.panels[0].marks[0].digits is None


def test_names_are_left_out_where_cells_are_thinned():
    weights = [torch.eye(300).tolist()]
    figure = figures.attention(weights, [str(n) for n in range(300)])
    assert figure.panels[0].x_names == ()
    assert "of 2 × 2" in figure.alt


def test_a_shuffled_text_shows_both_ways_of_reading():
    found = Order(["a", "dog", "dog"], [2, 0, 1], [0.5, 0.25, 0.75], [0, 0, 0], (1, 2), 0.31, 1e-7)
    figure = figures.shuffled(found)
    assert [mark.y for mark in figure.panels[0].marks] == [[50, 25, 75], [0, 0, 0]]
    assert "change by 50 % on average" in figure.says
    assert "“dog” differ by 31%; without positions: none." in figure.says
    assert "with positions switched off: none." in figure.says
    found = replace(found, without=[11.0, 11.0, 11.0], apart_without=1.2)
    assert "switched off: 1,100%" in figures.shuffled(found).says.replace("11×", "1,100%")


@pytest.mark.parametrize(("share", "text"), [(-0.001, "0%"), (-0.123, "−12%"), (0.5, "50%")])
def test_shares_have_no_negative_zero(share, text):
    assert _percent(share) == text
