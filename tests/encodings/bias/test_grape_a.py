"""GRAPE-A against its formula in Python's own numbers, ALiBi, and the code of GRAPE-AP."""

import math

import pytest
import torch

from posenc import GRAPEA, ALiBi, attend, masks
from posenc.core.encoding import Encoding

DIM, HEADS = 8, 4


def softplus(x):
    return math.log1p(math.exp(x))


def test_is_the_distance_times_what_query_and_key_choose():
    """Follows `QueryKeyGatedAdditiveBias` of llama-mha-grape-a-querykeygated.py."""
    grape, (q, k) = GRAPEA(DIM, HEADS), torch.randn(2, 1, HEADS, 5, DIM)
    grape.omega.data = torch.randn(HEADS)
    pos = torch.tensor([[[0, 1, 5, 6, 90]]])
    bias = grape.on_scores(q, k, pos, pos, scale=1.0)
    for h, i, j in torch.cartesian_prod(torch.arange(HEADS), torch.arange(5), torch.arange(5)):
        gates = 0.0
        for x, direction in ((q[0, h, i], grape.v[h]), (k[0, h, j], grape.u[h])):
            along = sum(a * b for a, b in zip(x.tolist(), direction.tolist(), strict=True))
            gates += softplus(along / math.hypot(*direction.tolist()) / DIM**0.5)
        slope = softplus(grape.omega[h].item()) * 2 ** (-8 * (h.item() + 1) / HEADS)
        apart = abs(int(pos[0, 0, i] - pos[0, 0, j]))
        found = bias(torch.tensor(0), h, i, j).item()
        assert found == pytest.approx(-apart * slope * gates, abs=1e-4)


def test_begins_with_omega_of_1():
    assert softplus(GRAPEA(DIM, HEADS).omega[0].item()) == pytest.approx(1)


def test_where_nothing_is_chosen_it_is_alibi():
    """Queries and keys of 0 have gates of ln 2 each; values differ."""
    q, v = torch.zeros(1, HEADS, 30, DIM), torch.randn(1, HEADS, 30, DIM)
    made = attend(q, q, v, GRAPEA(DIM, HEADS), mask=masks.causal())
    alibi = ALiBi(HEADS, strength=2 * math.log(2))
    torch.testing.assert_close(made, attend(q, q, v, alibi, mask=masks.causal()))


class PathIntegral(Encoding):
    """The bias of llama-mha-grape-ap-v1.py: Σ_{t = j+1 … i} m log σ(p_i · R_t p̂_t / d), m = 1."""

    def on_scores(self, q, k, q_at, k_at, scale):
        angle = k_at[..., None].double()  # base 1, so that all pairs turn alike
        normed = torch.nn.functional.rms_norm(k, (k.shape[-1],))
        a, b = normed.chunk(2, -1)
        turned = torch.cat(
            (a * angle.cos() + b * angle.sin(), b * angle.cos() - a * angle.sin()), -1
        )
        edges = torch.nn.functional.logsigmoid(q @ turned.mT / q.shape[-1]).tril()
        return edges.sum(-1, keepdim=True) - edges.cumsum(-1)


def test_the_path_integral_moves_with_the_text_and_this_form_does_not():
    """Moved by 5 tokens; the bias of one of the two changes by more than a tenth of its largest."""
    torch.manual_seed(0)
    p, pos = torch.randn(1, HEADS, 9, DIM, dtype=torch.float64), torch.arange(9)[None, None]
    of_path = [PathIntegral().on_scores(p, p, at, at, 1.0) for at in (pos, pos + 5)]
    assert (of_path[1] - of_path[0]).abs().max() > 0.1 * of_path[0].abs().max()
    grape = GRAPEA(DIM, HEADS)
    made = [attend(p, p, p, grape, at, mask=masks.causal()) for at in (pos, pos + 5)]
    torch.testing.assert_close(*made)
