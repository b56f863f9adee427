"""p-RoPE against its definition, and against transformers' "proportional" frequencies."""

import pytest
import torch
from refusals import refused
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from posenc import RoPE, create, p_rope
from posenc.core.frequencies import frequencies

POS = torch.tensor([0, 1, 50, 10**6])


def turned(p, x):
    return RoPE(p_rope(frequencies(16), p))(x, x, POS)[0]


def test_p_of_one_is_rope():
    x = torch.randn(1, 2, 4, 16)
    assert turned(1.0, x).equal(RoPE(16)(x, x, POS)[0])


def test_p_of_zero_turns_nothing():
    x = torch.randn(1, 2, 4, 16)
    assert turned(0.0, x).equal(x)


def test_the_fastest_pairs_turn_and_the_slow_rest_is_untouched():
    x = torch.randn(1, 2, 4, 16)
    out = turned(0.75, x)
    assert out[..., :12].equal(RoPE(16)(x, x, POS)[0][..., :12])
    assert out[..., 12:].equal(x[..., 12:])


def test_pairs_keep_their_places_in_both_layouts():
    freqs = p_rope(frequencies(8), 0.5)
    assert freqs.tolist() == pytest.approx([1.0, 0.1, 0.0, 0.0])
    x = torch.randn(1, 1, 4, 8)
    half = RoPE(freqs, layout="half")(x, x, POS)[0]
    assert half[..., [2, 3, 6, 7]].equal(x[..., [2, 3, 6, 7]])
    assert not half[..., 1:, [0, 1, 4, 5]].isclose(x[..., 1:, [0, 1, 4, 5]]).any()


@pytest.mark.parametrize("p", [0.0, 0.1, 0.25, 0.3, 0.5, 0.7, 0.75, 0.9, 1.0])
@pytest.mark.parametrize("dim", [4, 10, 64, 128])
def test_equals_proportional_in_transformers(dim, p):
    parameters = {"rope_type": "proportional", "rope_theta": 500.0, "partial_rotary_factor": p}
    config = LlamaConfig(head_dim=dim, rope_parameters=parameters)
    expected, gain = ROPE_INIT_FUNCTIONS["proportional"](config, "cpu")
    assert gain == 1
    torch.testing.assert_close(p_rope(frequencies(dim, 500.0), p).float(), expected)


def test_can_be_created_by_name():
    assert create("p-rope", dim=8, heads=2, p=0.25).freqs.tolist() == [1, 0, 0, 0]


@pytest.mark.parametrize("p", [-0.1, 1.1, float("nan")])
def test_p_is_a_share(p):
    with refused(ValueError, 0, 1, p):
        p_rope(frequencies(8), p)
