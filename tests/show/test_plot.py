"""Pictures from Python: their numbers against formulas, and what cannot be drawn."""

import math

import pytest
import torch
from refusals import refused

import posenc.catalog
from posenc import ALiBi, RoPE, Shaw, plot
from posenc.show.report.drawing.marks import Line


def marks(picture, panel=0):
    return picture.figure.panels[panel].marks


def test_rows_are_sines_and_cosines_of_the_position():
    (heat,) = marks(plot.rows("sinusoidal", tokens=5))
    theta = [10_000 ** (-2 * j / 64) for j in range(32)]
    for p in range(5):
        assert heat.z[0][p] == pytest.approx(math.sin(p * theta[0]), abs=1e-4)
        assert heat.z[63][p] == pytest.approx(math.cos(p * theta[31]), abs=1e-4)


def test_channels_can_be_chosen():
    picture = plot.channels("sinusoidal", tokens=5, channels=(0, 1, 50))
    titles = [panel.title for panel in picture.figure.panels]
    assert titles == ["channel 0", "channel 1", "channel 50"]


def test_channels_are_rows_seen_from_the_side():
    (heat,) = marks(plot.rows("sinusoidal", tokens=5))
    picture = plot.channels("sinusoidal", tokens=5)
    for n, channel in enumerate((0, 13, 25, 38, 50, 63)):
        (line,) = marks(picture, n)
        assert list(line.y) == pytest.approx(heat.z[channel], abs=1e-4)


def test_places_are_those_that_encodings_say_of_themselves():
    panel = plot.places().figure.panels[0]
    *_, points = panel.marks
    found = [n for n, row in enumerate(points.y) if panel.y_names[row] == "FoX"]
    assert [panel.x_names[points.x[n]] for n in found] == ["the input of a layer", "scores"]
    assert len(panel.y_names) == len(posenc.catalog.CATALOG)


def test_similarity_is_that_of_rows():
    (cells,) = marks(plot.similarity(RoPE(4), tokens=3))
    cosine = cells.z
    expected = (math.cos(2) + math.cos(0.02)) / 2
    assert cosine[0][2] == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("layout", ["interleaved", "half"])
def test_rows_of_rope_are_angles_or_their_cosines(layout):
    """p · θ, wrapped to −π … π; cos of it."""
    angle, cosine = (
        marks(plot.rows(RoPE(8, layout=layout), tokens=9, of=of))[0] for of in ("angle", "cos")
    )
    for pair in range(4):
        turned = [p * 10_000 ** (-2 * pair / 8) for p in range(9)]
        wrapped = [math.remainder(one, 2 * math.pi) for one in turned]
        assert angle.z[pair] == pytest.approx(wrapped, abs=1e-3)
        assert cosine.z[pair] == pytest.approx([*map(math.cos, turned)], abs=1e-3)
    assert (angle.span, cosine.span) == ((-math.pi, math.pi), (-1, 1))


def test_a_bias_is_drawn_against_distance():
    lines = marks(plot.bias(ALiBi(2), tokens=4))
    assert [list(line.y) for line in lines] == [
        pytest.approx([-m * back for back in range(4)]) for m in (2**-4, 2**-8)
    ]
    assert "untrained" in plot.bias("t5").title


@pytest.mark.parametrize("layout", ["interleaved", "half"])
def test_clocks_are_pairs_of_the_layout_and_turn_by_their_frequency(layout):
    picture = plot.clocks(RoPE(8, layout=layout), tokens=4)
    first = {"interleaved": "channels 0 and 1", "half": "channels 0 and 4"}[layout]
    assert picture.figure.panels[0].title.startswith(first)
    start, later = (picture.figure.panels[n].marks[1] for n in (0, 3))
    turned = math.atan2(later.to_y[0], later.to_x[0]) - math.atan2(start.to_y[0], start.to_x[0])
    assert math.remainder(turned - 3.0, 2 * math.pi) == pytest.approx(0, abs=1e-5)


def test_attention_of_words_sums_to_one_and_sees_the_mask():
    picture = plot.attention("nope", "dog bites dog", causal=True)
    heat, *_ = marks(picture, 1)
    assert [sum(row) for row in heat.z] == pytest.approx([1, 1, 1], abs=1e-3)
    assert heat.z[0][1:] == [0, 0]
    assert heat.z[2][0] == heat.z[2][2]  # the same word has the same weights without positions
    assert picture.figure.panels[0].x_names == ["dog", "bites", "dog"]


def test_beside_attention_is_that_of_the_same_layer_without_positions():
    """RoPE keeps the score of a word with itself where it stands, and no other."""
    plain, turned = (marks(plot.attention("rope", "dog bites dog"), n)[0].z for n in (0, 1))
    assert plain[0] == plain[2]
    assert turned[0] != turned[2]
    nope = marks(plot.attention("nope", "dog bites dog"), 1)[0].z
    assert plain == nope


def test_pictures_of_a_model_are_its_wavelengths_and_dials():
    """θ = 1, 0.316, 0.1, 0.0316 a token: 64 tokens are a turn of all but the slowest."""
    config = {"model_type": "llama", "hidden_size": 32, "num_attention_heads": 4}
    config |= {"num_hidden_layers": 2, "max_position_embeddings": 64, "rope_theta": 100.0}
    drawn = plot.pictures(posenc.inspect(config, 256))
    line = next(mark for mark in marks(drawn["bands-0-0"]) if isinstance(mark, Line))
    assert list(line.y) == pytest.approx([2 * math.pi * 100 ** (j / 4) for j in range(4)])
    dials = drawn["dials-0-0"]
    assert dials.figure.panels[0].title == "as trained: 1 of 4 pairs meet new angles"
    assert dials.numbers.rows[3][3:] == ["32%", "68%", "0%", "1"]
    assert "dials-0-0" not in plot.pictures(posenc.inspect(config, 64))


@pytest.mark.usefixtures("unchecked")
def test_rows_are_of_what_has_a_name():
    with refused(ValueError, "`of`", '"values"', '"angle"', '"cos"'):
        plot.rows("rope", of="sine")


@pytest.mark.parametrize(
    ("call", "facts"),
    [
        (lambda: plot.rows("alibi"), ["`encoding`", "ALiBi", "`plot.bias`"]),
        (lambda: plot.channels("alibi"), ["`encoding`", "ALiBi", "`plot.bias`"]),
        (lambda: plot.channels("sinusoidal", channels=[64]), ["`channels`", "from 0 to 63", "64"]),
        (lambda: plot.similarity("t5"), ["`encoding`", "T5", "`plot.bias`"]),
        (lambda: plot.bias("rope"), ["`encoding`", "RoPE", "`plot.rows`"]),
        (lambda: plot.bias(Shaw(8)), ["`encoding`", "Shaw", "`plot.attention`"]),
        (lambda: plot.rows("alibi", of="angle"), ["`encoding`", "ALiBi", "RoPE"]),
        (lambda: plot.clocks("selective-rope"), ["`encoding`", "Selective RoPE", "`plot.clocks`"]),
        (lambda: plot.clocks("alibi"), ["`encoding`", "ALiBi", "`plot.clocks`"]),
        (lambda: plot.attention("rope", " "), ["`sentence`", "' '"]),
        (lambda: plot.rows("roep"), ["Did you mean rope"]),
    ],
)
def test_the_error_names_the_argument_and_a_picture_that_exists(call, facts):
    with pytest.raises((ValueError, LookupError)) as raised:
        call()
    assert [fact for fact in facts if fact not in str(raised.value)] == []


def test_no_seed_is_touched():
    torch.manual_seed(0)
    expected = torch.rand(1)
    torch.manual_seed(0)
    plot.attention("t5", "a b")
    plot.bias("t5")
    assert torch.rand(1).equal(expected)
