"""Convolutional positions of wav2vec 2.0 and PEG: which part of them depends on positions."""

import torch
from torch import nn
from torch.nn import functional as F
from transformers import Wav2Vec2Config
from transformers.models.wav2vec2.modeling_wav2vec2 import Wav2Vec2PositionalConvEmbedding

from posenc import Encoding
from posenc.positions import grid
from posenc.properties.conformance import conform
from posenc.properties.user_code import card_of

KERNEL, WIDTH = 6, 16


def of_speech():
    """The convolution of wav2vec 2.0 in transformers; its kernel has 6 tokens."""
    config = Wav2Vec2Config(
        hidden_size=WIDTH, num_conv_pos_embeddings=KERNEL, num_conv_pos_embedding_groups=2
    )
    return Wav2Vec2PositionalConvEmbedding(config).eval()


@torch.no_grad()
def test_without_content_only_the_padding_at_both_ends_depends_on_positions():
    rows = of_speech()(torch.ones(1, 20, WIDTH))[0]
    left, inside, right = rows.split([KERNEL // 2, 20 - KERNEL + 1, KERNEL // 2 - 1])
    torch.testing.assert_close(inside, inside[:1].expand_as(inside))
    for end in (left, right):
        assert not end.isclose(inside[0], atol=1e-3).all(-1).any()


@torch.no_grad()
def test_inside_a_text_it_moves_with_the_text():
    convolution, x = of_speech(), torch.randn(1, 20, WIDTH)
    moved = convolution(x.roll(3, 1))
    inside = slice(3 + KERNEL // 2, 20 - KERNEL)
    torch.testing.assert_close(moved[:, inside], convolution(x).roll(3, 1)[:, inside])


@torch.no_grad()
def test_without_content_peg_depends_on_the_distance_to_the_border_alone():
    """A depthwise convolution of 3 × 3 patches, as in CPVT."""
    image = F.conv2d(torch.ones(1, 1, 7, 7), torch.randn(1, 1, 3, 3), padding=1)[0, 0]
    border = ((grid(7, 7) == 0) | (grid(7, 7) == 6)).any(-1).view(7, 7)
    torch.testing.assert_close(image[~border], image[3, 3].expand(25))
    assert (image[border] - image[3, 3]).abs().max() > 1e-3


class Convolved(Encoding):
    """A convolution in the hook of embeddings, x + GELU(conv(x))."""

    def __init__(self, width):
        super().__init__()
        self.width = width
        self.mix = nn.Conv1d(width, width, 3, padding=1, groups=width)

    def on_embeddings(self, x, at):
        return x + F.gelu(self.mix(x.mT).mT)


def test_as_an_encoding_it_breaks_caches_and_packed_texts():
    found = conform(card_of(Convolved(32)), 8, 4)
    broken = {one.name for one in found.failed}
    assert {"cache", "packed texts", "token by token"} <= broken
