"""Biases per axis against the buckets of transformers' LayoutLMv2 and LayoutLMv3."""

import pytest
import torch
from refusals import refused
from transformers import LayoutLMv2Config, LayoutLMv3Config
from transformers.models.layoutlmv2.modeling_layoutlmv2 import LayoutLMv2Encoder
from transformers.models.layoutlmv3.modeling_layoutlmv3 import LayoutLMv3Encoder

from posenc import FIRE, ALiBi, DeBERTa, Kerple, RoPE, Shaw, T5Bias, attend
from posenc.encodings.bias.per_axis import PerAxis
from posenc.positions import grid
from posenc.testing import conform

SIZES = dict(hidden_size=24, num_attention_heads=3, num_hidden_layers=1)


def of_page(theirs):
    """Return the encoding with the weights of an encoder."""
    parts = T5Bias(3, 32, 128), T5Bias(3, 64, 256), T5Bias(3, 64, 256)
    weights = theirs.rel_pos_bias, theirs.rel_pos_x_bias, theirs.rel_pos_y_bias
    for part, linear in zip(parts, weights, strict=True):
        part.weight.data = linear.weight.data.mT.contiguous()
    return PerAxis(*parts)


def page(words):
    """Return indices of words, and boxes (left, top, right, bottom) whose offsets are varied."""
    left, bottom = torch.randint(0, 1001, (2, 2, words))
    left[0], bottom[0] = torch.arange(words) % 1001, torch.arange(words).flip(0) * 3 % 1001
    return torch.arange(words).expand(2, -1), torch.stack((left, bottom, left, bottom), -1)


def test_equals_layoutlmv2_at_every_offset():
    theirs = LayoutLMv2Encoder(LayoutLMv2Config(**SIZES))
    index, box = page(700)
    expected = theirs._calculate_1d_position_embeddings(index)
    expected = expected + theirs._calculate_2d_position_embeddings(box)
    made = of_page(theirs)(torch.stack((index, box[..., 0], box[..., 3]), -1))
    torch.testing.assert_close(made, expected)


def test_equals_layoutlmv3_at_every_offset():
    config = LayoutLMv3Config(
        has_relative_attention_bias=True, has_spatial_attention_bias=True, **SIZES
    )
    theirs = LayoutLMv3Encoder(config)
    index, box = page(300)
    expected = theirs._cal_1d_pos_emb(index) + theirs._cal_2d_pos_emb(box)
    made = of_page(theirs)(torch.stack((index, box[..., 0], box[..., 3]), -1))
    torch.testing.assert_close(made, expected)


def test_alibi_along_two_axes_is_the_distance_in_blocks():
    points = grid(3, 4)
    blocks = (points[:, None] - points).abs().sum(-1)
    bias = PerAxis(ALiBi(2), ALiBi(2))(points)[0]
    torch.testing.assert_close(bias, -blocks * torch.tensor([2**-4, 2**-8]).view(2, 1, 1))


@pytest.mark.parametrize(
    "make",
    [
        lambda dim, heads: PerAxis(T5Bias(heads), T5Bias(heads, 8, 20), T5Bias(heads, 8, 20)),
        lambda dim, heads: PerAxis(ALiBi(heads), Kerple(heads)),
    ],
    ids=["T5", "ALiBi and KERPLE"],
)
def test_keeps_all_promises(make):
    conform(make)


@pytest.mark.parametrize("part", [RoPE(8), Shaw(8), "alibi"], ids=str)
def test_refuses_parts_without_a_bias_of_distance(part, unchecked):
    with refused(TypeError, "`parts`"):
        PerAxis(ALiBi(8), part)


def test_refuses_a_bias_that_depends_on_queries():
    encoding, q = PerAxis(ALiBi(2), DeBERTa(8, 2)), torch.randn(1, 2, 4, 8)
    with refused(TypeError, "`parts`", "DeBERTa"):
        attend(q, q, q, encoding, grid(2, 2))


def test_parts_may_lose_their_bias_of_distance_far_into_a_text():
    """FIRE divides by the position of the query beyond its length."""
    fire = FIRE(2, length=4.0)
    encoding, points = PerAxis(fire, ALiBi(2)), torch.tensor([[0, 0], [3, 1]])
    along = fire(points[:, 0]) + ALiBi(2)(points[:, 1])
    torch.testing.assert_close(encoding(points), along)
    with refused(TypeError, "`parts`", "FIRE"):
        encoding(points + 5)


@pytest.mark.parametrize("parts", [(ALiBi(8),), (ALiBi(8), ALiBi(4)), ()], ids=str)
def test_refuses_a_single_part_and_other_heads(parts):
    with refused(ValueError, "`parts`", len(parts)):
        PerAxis(*parts)
