"""`attend` against the sixty lines of docs/internals.md, which are run unchanged."""

import re
from itertools import product
from pathlib import Path

import pytest
import torch

from posenc import ALiBi, NoPE, RoPE, attend, masks

PAGE = Path(__file__).parent.parent.parent / "docs/internals.md"
CODE = re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)[0]
HEADS, DIM = 4, 8
ENCODINGS = {
    (False, False): NoPE(),
    (True, False): RoPE(DIM),
    (False, True): ALiBi(HEADS),
    (True, True): RoPE(DIM) + ALiBi(HEADS),
}
PLACES = {  # positions of queries and of keys
    "a text": (torch.arange(7), torch.arange(7)),
    "the last tokens": (torch.arange(5, 9), torch.arange(9)),
    "gaps, and out of order": (torch.tensor([9, 2, 40]), torch.tensor([3, 40, 0, 8, 9])),
    "keys ahead of all": (torch.tensor([1, 0, 7]), torch.tensor([2, 5, 90])),
}


@pytest.fixture(scope="module")
def attention():
    names = {}
    exec(CODE, names)
    return names["attention"]


def test_they_are_sixty_lines():
    assert len(CODE.splitlines()) <= 60


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("groups", [1, 2, 4])
def test_attend_equals_them_forward_and_backward(attention, place, dtype, groups):
    """Only outputs are compared for rows that see no key, because softmax has no gradient there."""
    q_pos, k_pos = PLACES[place]
    torch.manual_seed(0)
    for (rope, alibi), causal, scale in product(ENCODINGS, (True, False), (None, 0.7)):
        encoding = ENCODINGS[rope, alibi]
        q = torch.randn(2, HEADS, len(q_pos), DIM, dtype=dtype, requires_grad=True)
        k, v = torch.randn(2, 2, groups, len(k_pos), DIM, dtype=dtype).unbind()
        k, v = k.requires_grad_(), v.requires_grad_()
        mask = masks.causal(q_pos, k_pos) if causal else None
        ours = attend(q, k, v, encoding, q_pos, k_pos, mask, scale)
        plain = attention(q, k, v, q_pos, k_pos, rope, alibi, causal, scale)
        torch.testing.assert_close(ours, plain, rtol=1e-5, atol=2e-6)
        if causal and int(q_pos.min()) < int(k_pos.min()):
            assert ours[:, :, q_pos < k_pos.min()].eq(0).all()
            continue
        grad = torch.randn_like(ours)
        for made, expected in zip(
            *(torch.autograd.grad(out, (q, k, v), grad) for out in (ours, plain)), strict=True
        ):
            torch.testing.assert_close(made, expected, rtol=1e-4, atol=1e-5)
