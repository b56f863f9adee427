"""Attention of one query in one pass over keys and values, compiled by Numba: the extra `fast`.

    score(j) = (q · scale + end + key_row(j)) · kⱼ + q · scale · query_row(j) + row(j)
    out = value_end + Σⱼ weight(j) (vⱼ + value_row(j)),       weights = softmax(scores)

All but q · k and v may be missing. The last keys alone, those near by, have rows of channels; `row`
has one number for each key. A thread takes whole heads. It is compiled once, for some seconds, and
kept on disk.
"""

# pyright: reportMissingImports=false, reportCallIssue=false
# pyright: reportPrivateImportUsage=false, reportAttributeAccessIssue=false
from math import exp

import numba
import numpy as np
import torch
from numba import carray, njit, prange, types
from numba.extending import intrinsic
from torch import Tensor

from posenc.core import fast
from posenc.core.biases import OneQuery

FASTER = {"reassoc", "contract", "nsz"}  # sums in any order, for vectors; ∞ and NaN stay
Place = tuple[int, int, int, int, int]  # of a tensor in memory: its address, and its four strides
NOWHERE: Place = (0, 0, 0, 0, 0)
LEAST = np.finfo(np.float32).min


class ByNumba:
    """Attention of tensors of these shapes, channels side by side; all else is left to `otherwise`.

    `added` are `row`, `query_rows`, `key_rows`, `end`, `value_rows` and `value_end`, or None; they
    broadcast to (batch, head, token, channel), and `row` to (batch, head, 1, key).
    """

    def __init__(
        self,
        otherwise: OneQuery,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        scale: float,
        *added: Tensor | None,
    ):
        (texts, heads, _, channels), (of_keys, keys) = q.shape, k.shape[1:3]
        self.shapes, self.scale, self.otherwise = (q.shape, k.shape, v.shape), scale, otherwise
        self.added = [x if x is None else _expanded(x, texts, heads) for x in added]
        self.places = [_place(x) for x in self.added]
        near = max([x.shape[2] for x in self.added[1:] if x is not None], default=0)
        self.sizes = texts, heads, of_keys, keys, near, channels

    def __call__(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        q_at, k_at, v_at = _place(q), _place(k), _place(v)
        side_by_side = q_at[4] == k_at[4] == v_at[4] == 1
        if (q.shape, k.shape, v.shape) != self.shapes or not side_by_side or fast.forked:
            return self.otherwise(q, k, v)
        out = q.new_empty(q.shape)
        numba.set_num_threads(min(torch.get_num_threads(), numba.config.NUMBA_NUM_THREADS))
        _attend(q_at, k_at, v_at, _place(out), *self.places, self.sizes, self.scale)
        return out


def _expanded(x: Tensor, texts: int, heads: int) -> Tensor:
    x = x.detach().float()
    x = x if x.stride(-1) == 1 else x.contiguous()
    return x.expand(texts, heads, *x.shape[-2:])


def _place(x: Tensor | None) -> Place:
    return NOWHERE if x is None else (x.data_ptr(), *x.stride())  # type: ignore[return-value]


@intrinsic
def _pointer(context, address):
    """The pointer to float32 at an address."""

    def build(context, builder, signature, values):
        return builder.inttoptr(values[0], context.get_value_type(signature.return_type))

    return types.CPointer(types.float32)(types.intp), build


@njit(inline="always")
def _vector(x, text, head, token, size):
    """The numbers of one token, side by side in memory."""
    return carray(_pointer(x[0] + 4 * (text * x[1] + head * x[2] + token * x[3])), (size,))


@njit(inline="always", fastmath=FASTER)
def _dot(a, b):
    total = np.float32(0)
    for i in range(len(a)):
        total += a[i] * b[i]
    return total


@njit(inline="always", fastmath=FASTER)
def _add(out, weight, x):
    for i in range(len(out)):
        out[i] += weight * x[i]


_PLACE, _SIZES = types.UniTuple(types.intp, 5), types.UniTuple(types.intp, 6)


@njit(
    types.void(_PLACE, _PLACE, _PLACE, _PLACE, *[_PLACE] * 6, _SIZES, types.float32),
    parallel=True,
    fastmath=FASTER,
    cache=True,
)
def _attend(q, k, v, out, row, query_rows, key_rows, end, value_rows, value_end, sizes, scale):
    texts, heads, of_keys, keys, near, channels = sizes
    far = keys - near
    for each in prange(texts * heads):
        text, head = each // heads, each % heads
        shared = head * of_keys // heads  # the head of the keys
        query, moved = np.zeros(channels, np.float32), np.zeros(channels, np.float32)
        _add(query, scale, _vector(q, text, head, 0, channels))
        _add(moved, scale, _vector(q, text, head, 0, channels))
        if end[0]:
            _add(moved, np.float32(1), _vector(end, text, head, 0, channels))
        scores, most = np.empty(keys, np.float32), LEAST
        for j in range(keys):
            scores[j] = _dot(moved, _vector(k, text, shared, j, channels))
        if query_rows[0]:
            for j in range(near):
                scores[far + j] += _dot(query, _vector(query_rows, text, head, j, channels))
        if key_rows[0]:
            for j in range(near):
                key = _vector(k, text, shared, far + j, channels)
                scores[far + j] += _dot(key, _vector(key_rows, text, head, j, channels))
        if row[0]:
            _add(scores, np.float32(1), _vector(row, text, head, 0, keys))
        for j in range(keys):
            most = max(most, scores[j])
        total, mean = np.float32(0), np.zeros(channels, np.float32)
        for j in range(keys):
            scores[j] = exp(scores[j] - most)
            total += scores[j]
        total = total if total != 0 else np.float32(1)  # every score is −∞: 0, as torch has it
        for j in range(keys):
            _add(mean, scores[j], _vector(v, text, shared, j, channels))
        if value_rows[0]:
            for j in range(near):
                _add(mean, scores[far + j], _vector(value_rows, text, head, j, channels))
        result = _vector(out, text, head, 0, channels)
        for i in range(channels):
            result[i] = mean[i] / total
        if value_end[0]:
            _add(result, np.float32(1), _vector(value_end, text, head, 0, channels))


def check() -> None:
    """Try the kernel. Raises RuntimeError for a wrong sum, or threads that only one may call."""
    x = torch.ones(1, 2, 3, 4)
    q, none = x[:, :, :1], [None] * 6
    out = ByNumba(lambda *_: 0 * q, q, x, x, 0.5, *none)(q, x, x)
    if out.tolist() != q.tolist():
        raise RuntimeError(f"it gives {out.tolist()} for ones")
    if numba.threading_layer() not in ("omp", "tbb"):
        raise RuntimeError(f"its threads are those of {numba.threading_layer()}, not of OpenMP")
