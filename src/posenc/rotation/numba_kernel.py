"""CPU kernel of the rotation with layout "half", compiled by Numba (the extra `fast`).

    (a, b) → (a cos − b sin, b cos + a sin)        each row read once and written once

bfloat16 is the upper half of a float32. It is widened by a shift, and rounded to nearest even by
adding to the bits. The first call compiles for one or two seconds.
"""

# pyright: reportMissingImports=false, reportCallIssue=false
# Numba marks no name as exported:
# pyright: reportPrivateImportUsage=false, reportAttributeAccessIssue=false
import numba
import numpy as np
import torch
from numba import njit, prange, types
from numba.extending import intrinsic
from torch import Tensor

from posenc.rotation.table import Turn


def by_numba(x: Tensor, by: Turn, out: Tensor | None = None) -> Tensor:
    """Rotate `x`, (batch, head, token, channel), whose channels must be contiguous."""
    out = torch.empty_like(x) if out is None else out
    # Iterate over rows in the order of memory
    order = sorted(range(3), key=lambda axis: -x.stride(axis))
    tables = [t.contiguous().expand(*x.shape[:3], -1) for t in by]
    steps = [tuple(t.stride(axis) for axis in order) for t in (x, out, tables[0])]
    shape = tuple(x.shape[axis] for axis in order)
    KERNELS[x.dtype](*map(_as_numpy, (x, out, *tables)), shape, *steps, x.shape[-1] // 2)
    return out


def _as_numpy(x: Tensor) -> np.ndarray:
    """Return the memory that `x` spans as a one-dimensional NumPy array without a copy."""
    last = sum((n - 1) * step for n, step in zip(x.shape, x.stride(), strict=True))
    line = x.detach().as_strided((last + 1,), (1,))
    return (line.view(torch.uint16) if x.dtype is torch.bfloat16 else line).numpy()


def _bitcast(source, target):
    """Return a Numba function that reinterprets the bits of a number as another type."""

    def build(context, builder, signature, values):
        return builder.bitcast(values[0], context.get_value_type(target))

    return intrinsic(lambda context, x: (target(source), build))


_to_float, _to_bits = (
    _bitcast(types.uint32, types.float32),
    _bitcast(types.float32, types.uint32),
)
_identity = njit(inline="always")(lambda x: x)
_widened = njit(inline="always")(lambda short: _to_float(np.uint32(short) << np.uint32(16)))


@njit(inline="always")
def _rounded(x):
    bits = _to_bits(x)  # adding 0x7FFF, or 0x8000 if the kept part is odd, rounds to even
    even = (bits >> np.uint32(16)) & np.uint32(1)
    rounded = np.uint16((bits + np.uint32(0x7FFF) + even) >> np.uint32(16))
    return rounded if x == x else np.uint16(0x7FC0)


def _kernel(wide, narrow):
    @njit(parallel=True)
    def turn(x, out, cos, sin, shape, steps, out_steps, table_steps, pairs):
        for row in prange(shape[0] * shape[1] * shape[2]):
            i, j, k = row // shape[2] // shape[1], row // shape[2] % shape[1], row % shape[2]
            m = i * steps[0] + j * steps[1] + k * steps[2]
            n = i * out_steps[0] + j * out_steps[1] + k * out_steps[2]
            t = i * table_steps[0] + j * table_steps[1] + k * table_steps[2]
            # Numba vectorises the loop only with these views
            a, b, c, s = x[m:], x[m + pairs :], cos[t:], sin[t:]
            first, second = out[n:], out[n + pairs :]
            for p in range(pairs):
                first[p] = narrow(wide(a[p]) * c[p] - wide(b[p]) * s[p])
                second[p] = narrow(wide(b[p]) * c[p] + wide(a[p]) * s[p])

    return turn


KERNELS = {
    torch.float32: _kernel(_identity, _identity),
    torch.bfloat16: _kernel(_widened, _rounded),
}


def self_test() -> None:
    """Test the kernel, and raise RuntimeError if it cannot be used.

    The results must be correct, and several threads must be able to call the kernel.
    """
    x, table = torch.ones(1, 1, 1, 2), torch.ones(1, 1, 1, 1)
    sums = [by_numba(x.to(dtype), Turn(table, table)).sum().item() for dtype in KERNELS]
    if sums != [2.0, 2.0]:
        raise RuntimeError(f"the sums of the two test outputs must be 2.0, got {sums}")
    if numba.threading_layer() not in ("omp", "tbb"):
        raise RuntimeError(
            f"Numba's threading layer must be OpenMP or TBB, got {numba.threading_layer()}"
        )
