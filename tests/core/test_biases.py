"""Biases against loops over pairs: one that counts what a query sees, written as blocks alone."""

import re
from dataclasses import dataclass
from itertools import product

import pytest
import torch
from refusals import refused
from torch import Tensor, nn

from posenc import ALiBi, RoPE, Shaw, Sum, attend, explain, masks, positions
from posenc.biases.distance import DistanceBias
from posenc.core.encoding import Encoding

DIM, HEADS = 4, 2


@dataclass
class Counted:
    """−pace · the number of open gates from the key to the last that the query sees."""

    q: Tensor
    k: Tensor
    pace: Tensor

    def block(self, rows: slice, keys: slice, seen: Tensor | None) -> Tensor:
        gates = (self.q[..., rows, :] @ self.k[..., keys, :].mT).sigmoid()
        gates = gates if seen is None else gates * seen
        return -self.pace * gates.flip(-1).cumsum(-1).flip(-1)


class Counting(Encoding):
    def __init__(self):
        super().__init__()
        self.pace = nn.Parameter(torch.tensor(0.3))

    def on_scores(self, q, k, q_at, k_at, scale):
        return Counted(q, k, self.pace)


class Function(Encoding):
    """A plain function of indices, which no fast path knows."""

    def on_scores(self, q, k, q_at, k_at, scale):
        return lambda b, h, i, j: (0.3 * (h + 1) * i - 0.2 * j).sin()


def by_loops(q, k, v, pace, sees):
    out = torch.zeros(*q.shape[:-1], v.shape[-1], dtype=torch.float64)
    batch, heads, queries, dim = q.shape
    for b, h, i in product(range(batch), range(heads), range(queries)):
        keys = [j for j in range(k.shape[2]) if sees(b, i, j)]
        if not keys:
            continue
        content = torch.stack([q[b, h, i] @ k[b, h, j] for j in keys])
        gates = content.sigmoid()
        count = torch.stack([gates[n:].sum() for n in range(len(keys))])
        weights = (content * dim**-0.5 - pace * count).softmax(-1)
        out[b, h, i] = sum(w * v[b, h, j] for w, j in zip(weights, keys, strict=True))
    return out


def heads(tokens, dtype=torch.float64, batch=2):
    return torch.randn(3, batch, HEADS, tokens, DIM, dtype=dtype).unbind()


IDS = positions.documents([4, 3, 2])
CASES = {
    "all": (None, lambda b, i, j: True),
    "causal": (masks.causal(), lambda b, i, j: j <= i),
    "window": (masks.causal() & masks.window(3), lambda b, i, j: 0 <= i - j < 3),
    "packed": (
        masks.causal() & masks.documents(IDS),
        lambda b, i, j: j <= i and IDS[i] == IDS[j],
    ),
    "padded right": (masks.padding([9, 5]), lambda b, i, j: j < (9, 5)[b]),
    "padded left": (
        masks.causal() & masks.padding([9, 5], side="left"),
        lambda b, i, j: (0, 4)[b] <= j <= i,
    ),
    "a function": (lambda b, h, i, j: (i + j) % 3 > 0, lambda b, i, j: (i + j) % 3 > 0),
}


@pytest.mark.parametrize("path", ["reference", "blocks", "auto"])
@pytest.mark.parametrize("case", CASES)
def test_blocks_are_told_what_is_seen(case, path):
    (mask, sees), encoding = CASES[case], Counting().double()
    q, k, v = heads(9)
    with torch.no_grad():
        out = attend(q, k, v, encoding, mask=mask, implementation=path)
        torch.testing.assert_close(out, by_loops(q, k, v, encoding.pace, sees))


@pytest.mark.parametrize("path", ["reference", "blocks", "auto"])
@pytest.mark.parametrize("case", CASES)
def test_gradients_go_through_blocks(case, path):
    """Also of what the bias has learned; "blocks" makes each block again for them."""
    (mask, sees), encoding = CASES[case], Counting().double()
    leaves = (*(x.requires_grad_() for x in heads(9)), encoding.pace)
    out = attend(*leaves[:3], encoding, mask=mask, implementation=path)
    expected = by_loops(*leaves, sees)
    ours, theirs = (torch.autograd.grad(x.square().sum(), leaves) for x in (out, expected))
    torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("trains", [False, True], ids=["inference", "training"])
@pytest.mark.parametrize("other", [RoPE(DIM), ALiBi(HEADS), Shaw(DIM, reach=2), Function()])
def test_many_blocks_are_the_reference_also_in_a_sum(other, trains):
    encoding, tokens = Sum(other, Counting()), 300
    mask = masks.causal() & masks.documents(positions.documents([130, 170]))
    leaves = [x.requires_grad_(trains) for x in heads(tokens, torch.float32, 1)]

    def run(path):
        with torch.set_grad_enabled(trains):
            out = attend(*leaves, encoding, mask=mask, implementation=path)
            return (out, *torch.autograd.grad(out.square().sum(), leaves)) if trains else out

    torch.testing.assert_close(run("auto"), run("reference"), rtol=1e-4, atol=1e-4)


def test_a_key_that_nobody_sees_changes_nothing():
    encoding, (q, k, v) = Counting().double(), heads(9)
    mask = masks.causal() & masks.padding([9, 5])
    with torch.no_grad():
        expected = attend(q, k, v, encoding, mask=mask)
        k[1, :, 5:], v[1, :, 5:] = float("nan"), float("inf")
        torch.testing.assert_close(attend(q, k, v, encoding, mask=mask), expected)


def test_it_is_said_why_it_goes_by_blocks():
    q, k, v = heads(9)
    said = explain(q, k, v, Counting().double())
    assert said.path == "blocks"
    assert re.search("not toeplitz: .* Counting .*distance", str(said))


@pytest.mark.parametrize("encoding", [Counting(), Sum(ALiBi(HEADS), Counting())])
@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("flex", "one pair"),
        ("sdpa", "bias"),
        ("toeplitz", "distance"),
    ],
)
def test_paths_that_take_no_blocks_say_so(encoding, path, why):
    with torch.no_grad(), refused(ValueError, path, type(encoding).__name__, why):
        attend(*heads(5, torch.float32), encoding, implementation=path)


class Fading(Encoding):
    """A stranger's bias of distance, which reads a number and a tensor of the encoding."""

    def __init__(self, pace=0.5):
        super().__init__()
        self.pace, self.of_head = pace, torch.tensor([1.0, 2.0])

    def on_scores(self, q, k, q_at, k_at, scale):
        return DistanceBias(self.curve, q, q_at, k_at)

    def curve(self, head, offset):
        return -self.pace * self.of_head[head] * offset.abs()


@torch.no_grad()
def test_what_is_cached_of_a_bias_follows_its_numbers_and_tensors():
    encoding, (q, k, v) = Fading(), heads(6, torch.float32)
    q, at, k_at = q[..., -1:, :], torch.tensor([5]), torch.arange(6)
    for write in (
        lambda: None,
        lambda: setattr(encoding, "pace", 2.0),
        lambda: encoding.of_head.mul_(3),
    ):
        write()
        expected = attend(q, k, v, encoding, at.clone(), k_at.clone(), implementation="reference")
        torch.testing.assert_close(attend(q, k, v, encoding, at, k_at), expected)


@torch.no_grad()
def test_a_sum_of_biases_of_distance_is_a_view():
    q, k, v = heads(40, torch.float32)
    encoding = Sum(Fading(), ALiBi(HEADS))
    assert explain(q, k, v, encoding, mask=masks.causal()).path == "toeplitz"
    expected = attend(q, k, v, encoding, mask=masks.causal(), implementation="reference")
    torch.testing.assert_close(attend(q, k, v, encoding, mask=masks.causal()), expected)
