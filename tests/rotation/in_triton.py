"""The kernel of Triton against the formula: in Triton's interpreter, or on a GPU.

Run by test_triton_kernel.py, and on a GPU by tests/cuda/test_rotation.py.
"""

from itertools import product

import torch

from posenc import frequencies
from posenc.rotation.rotate import formula
from posenc.rotation.table import Turn, turn

BATCH, HEADS, TOKENS = 2, 4, 5
LAYOUTS = ("interleaved", "half")
DTYPES = (torch.float32, torch.float16, torch.bfloat16)
WIDTHS = ((32, None, 16), (40, 4, 5), (24, 0, 8), (6, None, 3))  # channels, start, pairs
STRIDES = ("contiguous", "projected", "channels last")


def heads_of(heads, channels, dtype, strides):
    x = torch.randn(BATCH, TOKENS, heads, channels).to(dtype).transpose(1, 2)
    if strides == "channels last":
        return x.mT.contiguous().mT
    return x.contiguous() if strides == "contiguous" else x


def same(one, other):
    if one.is_cuda or one.dtype != torch.bfloat16:
        return one.equal(other)
    # the interpreter cuts bfloat16 off where a GPU rounds
    return torch.allclose(one.float(), other.float(), rtol=2**-7, atol=0)


def main():
    from posenc.rotation.triton_kernel import by_triton  # not everybody has Triton

    torch.manual_seed(0)
    torch.set_default_device("cuda" if torch.cuda.is_available() else "cpu")
    cases = 0
    # Each width with each dtype in each layout, and each of the three strides with eight of these
    for layout, dtype, (channels, start, pairs) in product(LAYOUTS, DTYPES, WIDTHS):
        strides = STRIDES[cases % len(STRIDES)]
        x = heads_of(HEADS, channels, dtype, strides)
        scattered = torch.randint(0, 99, (BATCH, TOKENS))
        each = Turn(*torch.randn(2, BATCH, HEADS, TOKENS, pairs).unbind())
        for by in (
            turn(scattered, frequencies(2 * pairs)),
            turn(scattered[0], frequencies(2 * pairs)),
        ):
            out = by_triton(x, by, layout, start)
            assert same(out, formula(x, by, layout, start)), (layout, dtype, channels, strides)
        assert same(by_triton(x, each, layout, start), formula(x, each, layout, start))
        back = by_triton(out, Turn(by.cos, -by.sin), layout, start)
        assert torch.allclose(back.float(), x.float(), rtol=0.02, atol=0.05)
        cases += 1
    empty = torch.empty(0, HEADS, TOKENS, 6)
    by = turn(torch.arange(TOKENS), frequencies(6))
    assert by_triton(empty, by, "half", None).numel() == 0
    print("turned", cases)


if __name__ == "__main__":
    main()
