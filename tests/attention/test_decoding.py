"""One new token in many layers, against `attend` in each of them."""

import pytest
import torch

from posenc import CATALOG, ALiBi, CoPE, RoPE, Shaw, Sum, T5Bias, attend
from posenc.attention.decoding import Decoding
from posenc.core.positions import sequence

BY_DISTANCE = ["NoPE", "ALiBi", "T5", "KERPLE", "FIRE"]
CARDS = {card.name: card.make for card in CATALOG if card.name in BY_DISTANCE}
CARDS["Sum"] = lambda dim, heads: Sum(ALiBi(heads), T5Bias(heads))


def new_token(dtype=torch.float32, groups=2, value=8):
    q, k = torch.randn(3, 4, 1, 8, dtype=dtype), torch.randn(3, groups, 9, 8, dtype=dtype)
    return q, k, torch.randn(3, groups, 9, value, dtype=dtype)


@pytest.mark.parametrize("make", CARDS.values(), ids=CARDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@torch.no_grad()
def test_each_layer_has_what_attend_gives(make, dtype):
    encoding = make(8, 4)
    decoding = Decoding(encoding, encoding.prepare(sequence(1, 8)), encoding.prepare(sequence(9)))
    for scale in (0.3, 0.3, 0.1):
        q, k, v = new_token(dtype)
        out = decoding.attend(q, k, v, scale)
        expected = attend(q, k, v, encoding, decoding.at, decoding.k_at, scale=scale)
        torch.testing.assert_close(out, expected)
    assert len(decoding.rows) == 2


class Asked(ALiBi):
    """ALiBi that counts how often it is asked for a bias."""

    times = 0

    def on_scores(self, *given):
        self.times += 1
        return super().on_scores(*given)


@torch.no_grad()
def test_the_row_of_a_bias_is_computed_once_for_all_layers():
    encoding = Asked(4)
    decoding = Decoding(encoding, sequence(1, 8), sequence(9))
    for _ in range(5):
        decoding.attend(*new_token(), scale=0.3)
    assert encoding.times == 1


@pytest.mark.parametrize(
    ("encoding", "scale", "value"),
    [
        (CoPE(8), 0.3, 8),  # goes by content
        (Shaw(8), 0.3, 8),  # adds to the values
        (RoPE(8), 0.3, 8),  # turns: queries and keys are to be encoded
        (ALiBi(4), -0.3, 8),
        (ALiBi(4), 0.3, 6),
    ],
    ids=str,
)
@torch.no_grad()
def test_what_takes_more_than_the_kernel_is_left_to_attend(encoding, scale, value):
    decoding = Decoding(encoding, encoding.prepare(sequence(1, 8)), encoding.prepare(sequence(9)))
    for _ in range(2):
        assert decoding.attend(*new_token(value=value), scale) is None


def test_gradients_and_what_maps_over_tensors_are_left_to_attend():
    decoding = Decoding(ALiBi(4), sequence(1, 8), sequence(9))
    assert decoding.attend(*new_token(), 0.3) is None
    said = []
    with torch.no_grad():
        torch.func.vmap(lambda q: said.append(decoding.attend(q, q, q, 0.3)) or q)(
            torch.randn(2, 3, 4, 1, 8)
        )
    assert said == [None]
