"""Common behaviour of additive encodings, against x + rows: dtypes, batches, wrong shapes."""

import pytest
import torch
from refusals import refused

from posenc import (
    Binary,
    Integer,
    Learned,
    LinearSinusoidal,
    Normalized,
    Sine,
    SineCosine,
    Sinusoidal,
)

ALL = pytest.mark.parametrize(
    "encoding",
    [
        Integer(10),
        Normalized(10),
        Binary(10, bits=10),
        Sine(10),
        SineCosine(10),
        LinearSinusoidal(10),
        Sinusoidal(10),
        Learned(1000, 10),
    ],
    ids=lambda encoding: type(encoding).__name__,
)
POS = torch.tensor([0, 5, 257, 258, 999])  # bfloat16 would take 257 for 256


@ALL
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_16_bit_sum_is_the_float32_sum_rounded_once(encoding, dtype):
    x = torch.randn(2, 5, 10).to(dtype)
    assert encoding(x, POS).dtype == dtype
    assert encoding(x, POS).equal(encoding(x.float(), POS).to(dtype))


@ALL
def test_adds_the_row_of_each_position_whatever_the_embedding(encoding):
    x = torch.randn(2, 5, 10, dtype=torch.float64)
    rows = encoding(torch.zeros_like(x), POS)
    torch.testing.assert_close(encoding(x, POS) - x, rows)
    assert rows[0].equal(rows[1])


@ALL
def test_each_text_of_a_batch_may_stand_at_positions_of_its_own(encoding):
    x, pos = torch.randn(2, 5, 10), torch.stack((POS, POS.flip(0)))
    both = encoding(x, pos)
    for text in range(2):
        assert both[text].equal(encoding(x[text : text + 1], pos[text])[0])


@ALL
def test_positions_left_out_count_from_zero(encoding):
    x = torch.randn(2, 5, 10)
    assert encoding(x).equal(encoding(x, torch.arange(5)))


@ALL
def test_says_what_does_not_fit(encoding):
    with refused(ValueError, "(4, 10)", "`x`", "(5, 10)"):
        encoding(torch.ones(1, 5, 10), POS[:4])
    with refused(ValueError, "(1, 10)", "`x`", "(5, 10)"):
        encoding(torch.ones(1, 5, 10), POS[:1])
    with refused(ValueError, "`x`", "(5, 12)"):
        encoding(torch.ones(1, 5, 12), POS)
    with refused(TypeError, 256):
        encoding(torch.ones(1, 5, 10), POS.bfloat16())


@ALL
@pytest.mark.parametrize(("texts", "positions"), [(3, 2), (1, 3)])
def test_a_batch_of_positions_for_another_batch_is_refused(encoding, texts, positions, unchecked):
    with pytest.raises(ValueError, match="batch"):
        encoding(torch.ones(texts, 5, 10), POS.expand(positions, 5))
