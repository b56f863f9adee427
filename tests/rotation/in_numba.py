"""Run by test_numba_kernel.py where there is Numba: its kernel against the formula, bit for bit."""

import os
from itertools import product

import torch

from posenc import frequencies
from posenc.rotation import kernels
from posenc.rotation.rotate import formula, rotate
from posenc.rotation.table import turn

INF = float("inf")
BATCH, HEADS, TOKENS, PAIRS = 2, 3, 7, 5
STRIDES = {
    "contiguous": lambda x: x.contiguous(),
    "of a projection": lambda x: x.transpose(1, 2).contiguous().transpose(1, 2),
    "every other token": lambda x: x.repeat_interleave(2, 2)[:, :, ::2],
    "one for all": lambda x: x[:1, :, :1].expand_as(x),
    "at odd places": lambda x: torch.cat((x, x), -1)[..., 3 : 3 + x.shape[-1]],
}


def same(one, other):
    return one.isnan().equal(other.isnan()) and one.nan_to_num(7).equal(other.nan_to_num(7))


def main():
    kernels.FEW_NUMBERS = 0
    torch.manual_seed(0)
    cases = 0
    for dtype, strided, (start, channels) in product(
        (torch.float32, torch.bfloat16), STRIDES.values(), ((None, 2 * PAIRS), (0, 16), (6, 16))
    ):
        x = torch.randn(BATCH, HEADS, TOKENS, channels)
        x[0, 0, 0, :8] = torch.tensor(
            [0.0, -0.0, 1e-45, 3e38, -3e38, *map(float, ("inf", "-inf", "nan"))]
        )
        x = strided(x.to(dtype))
        for pos in (torch.arange(TOKENS), torch.randint(0, 9999, (BATCH, TOKENS))):
            by = turn(pos, frequencies(2 * PAIRS), 1.1)
            assert kernels.kernel_for(x, by, "half", start) == "numba"
            assert same(rotate(x, by, "half", start), formula(x, by, "half", start)), (dtype, start)
            cases += 1
    x = torch.randn(BATCH, HEADS, TOKENS, 2 * PAIRS, requires_grad=True)
    expected = formula(x, by, "half"), formula(2 * x, by, "half")
    grads = []
    for out in ((rotate(x, by, "half"), rotate(2 * x, by, "half")), expected):
        grads += torch.autograd.grad(out[0].square().sum() + out[1].exp().sum(), x)
    torch.testing.assert_close(*grads)
    assert kernels.kernel_for(x.half(), by, "half") == "halves"  # 16 bits of the other kind
    assert kernels.kernel_for(x.mT.contiguous().mT, by, "half") == "halves"
    if (child := os.fork()) == 0:
        done = rotate(x, by, "half").isfinite().all()
        os._exit(0 if done and kernels.kernel_for(x, by, "half") == "halves" else 1)
    assert os.waitpid(child, 0)[1] == 0, "a forked process must not use the threads of its parent"
    print("turned", cases)


if __name__ == "__main__":
    main()
