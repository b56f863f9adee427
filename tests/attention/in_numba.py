"""Run by test_numba_kernel.py where there is Numba: its kernel against what attention is."""

import os
from itertools import product

import torch

from posenc import (
    FIRE,
    ALiBi,
    DeBERTa,
    Kerple,
    NoPE,
    Shaw,
    T5Bias,
    attend,
    masks,
)
from posenc.attention import one_query
from posenc.core import fast
from posenc.core.positions import sequence

HEADS, DIM, KEYS = 4, 8, 37
ENCODINGS = {
    "NoPE": NoPE,
    "ALiBi": lambda: ALiBi(HEADS),
    "T5": lambda: T5Bias(HEADS),
    "KERPLE": lambda: Kerple(HEADS),
    "FIRE": lambda: FIRE(HEADS),
    "Shaw": lambda: Shaw(DIM, reach=5),
    "Shaw, reach 0": lambda: Shaw(DIM, reach=0),
    "Shaw, all near by": lambda: Shaw(DIM, reach=99),
    "DeBERTa": lambda: DeBERTa(DIM, HEADS, reach=5),
    "DeBERTa, released": lambda: DeBERTa(DIM, HEADS, reach=99, released=True),
    "DeBERTa, c2p": lambda: DeBERTa(DIM, HEADS, reach=5, terms=("c2p",)),
    "DeBERTa, p2c": lambda: DeBERTa(DIM, HEADS, reach=5, terms=("p2c",)),
}
STRIDES = {
    "contiguous": lambda x: x,
    "of a projection": lambda x: x.transpose(1, 2).contiguous().transpose(1, 2),
    "of a longer cache": lambda x: torch.cat((x, x), 2)[:, :, : x.shape[2]],
    "every other channel": lambda x: x.repeat_interleave(2, -1)[..., ::2],
}


def served(kernel):
    """Count the calls that the kernel serves."""
    calls, compiled = [], kernel._attend
    kernel._attend = lambda *given: calls.append(1) or compiled(*given)
    return calls


def attended(encoding, at, k_at, groups, strided, mask=None):
    q, k = torch.randn(3, HEADS, 1, DIM), torch.randn(3, groups, KEYS, DIM)
    q, k, v = (strided(x) for x in (q, k, torch.randn_like(k)))
    return [
        attend(q, k, v, encoding, at, k_at, mask, implementation=path)
        for path in ("auto", "reference")
    ]


def layers(calls):
    """Every encoding, heads that share keys or not, strides, a mask; weights change in between."""
    cases = product(ENCODINGS.values(), (1, 2, HEADS), STRIDES.items(), (1, 2))
    for make, groups, (name, strided), threads in cases:
        torch.set_num_threads(threads)
        encoding, pos, k_pos = make(), sequence(1, KEYS - 1), sequence(KEYS)
        at, k_at, mask = encoding.prepare(pos), encoding.prepare(k_pos), masks.causal(pos, k_pos)
        for _ in range(2):
            before = len(calls)
            for _ in range(4):
                ours, expected = attended(encoding, at, k_at, groups, strided, mask)
                torch.testing.assert_close(ours, expected, rtol=1e-4, atol=1e-5)
            assert (len(calls) > before) == (name != "every other channel"), (encoding, name)
            for weight in encoding.parameters():
                weight.data.neg_()


def edges(kernel):
    """What is not finite, and calls that do not fit what was prepared, against torch's kernel."""
    sdpa = torch.nn.functional.scaled_dot_product_attention
    q, k = torch.randn(1, 2, 1, DIM), torch.randn(1, 2, 5, DIM)
    none, row = [None] * 5, torch.randn(2, 1, 5)
    for edit in (
        lambda k, row: row.fill_(-torch.inf),
        lambda k, row: row[..., 1:].fill_(-torch.inf),
        lambda k, row: k[0, 0, 2, 3].fill_(torch.nan),
        lambda k, row: k[0, 0, 2, 3].fill_(torch.inf),
        lambda k, row: k.mul_(1e30),
    ):
        keys, added = k.clone(), row.clone()
        edit(keys, added)
        one = kernel.ByNumba(lambda *_: 1 / 0, q, keys, k, 0.3, added, *none)
        expected = sdpa(q, keys, k, added.expand(1, 2, 1, 5), scale=0.3)
        torch.testing.assert_close(one(q, keys, k), expected, equal_nan=True, rtol=1e-4, atol=1e-5)
    one = kernel.ByNumba(lambda *_: "left", q, k, k, 0.3, row, *none)
    assert one(q[:, :1], k, k) == one(q, k[:, :, :4], k) == one(q, k, k[..., :4]) == "left"
    one = one_query.fastest(sdpa, q, k, k, 0.3)
    assert one is not sdpa
    assert one_query.fastest(sdpa, q.double(), k.double(), k.double(), 0.3) is sdpa
    with torch.autocast("cpu", torch.bfloat16):
        assert one_query.fastest(sdpa, q, k, k, 0.3) is sdpa
    if (child := os.fork()) == 0:
        left = kernel.ByNumba(lambda *_: "left", q, k, k, 0.3, row, *none)(q, k, k)
        os._exit(0 if left == "left" and one_query.fastest(sdpa, q, k, k, 0.3) is sdpa else 1)
    assert os.waitpid(child, 0)[1] == 0, "a forked process must not use the threads of its parent"


@torch.no_grad()
def main():
    one_query.LEAST_NUMBERS = 0
    torch.manual_seed(0)
    kernel = fast.load("posenc.attention.numba_kernel")
    edges(kernel)
    calls = served(kernel)
    layers(calls)
    print("served", len(calls) > 0)


if __name__ == "__main__":
    main()
