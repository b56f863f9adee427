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
LEAST = np.finfo(np.float32).min
# The lines of a plan: sizes, then of each tensor its address, where no call has it, and its strides
SIZES, Q, K, V, ROW, QUERY_ROWS, KEY_ROWS, END, VALUE_ROWS, VALUE_END = range(10)

Strides = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]


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
        near = max([x.shape[2] for x in self.added[1:] if x is not None], default=0)
        self.sizes = texts, heads, of_keys, keys, near, channels
        self.plans: dict[Strides, tuple[np.ndarray, int] | None] = {}

    def __call__(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        strides = q.stride(), k.stride(), v.stride()
        try:
            plan = self.plans[strides]
        except KeyError:
            plan = self.plans[strides] = self._plan(strides)
        if plan is None or (q.shape, k.shape, v.shape) != self.shapes or fast.forked:
            return self.otherwise(q, k, v)
        out, threads = q.new_empty(q.shape), torch.get_num_threads()
        places = q.data_ptr(), k.data_ptr(), v.data_ptr(), out.data_ptr()
        _attend(plan[1], *places, self.scale, threads)
        return out

    def _plan(self, strides: Strides) -> tuple[np.ndarray, int] | None:
        """What the kernel is told of the tensors, and its address; None where it cannot serve."""
        if any([steps[3] != 1 for steps in strides]):
            return None
        places = [(0, *steps[:3]) for steps in strides]
        places += [(0,) * 4 if x is None else (x.data_ptr(), *x.stride()[:3]) for x in self.added]
        plan = np.zeros((1 + len(places), len(self.sizes)), np.int64)
        plan[SIZES], plan[Q:, :4] = self.sizes, places
        return plan, plan.ctypes.data


def _expanded(x: Tensor, texts: int, heads: int) -> Tensor:
    x = x.detach().float()
    x = x if x.stride(-1) == 1 else x.contiguous()
    return x.expand(texts, heads, *x.shape[-2:])


def _pointer_to(kind):
    """Make a function of Numba from addresses to pointers."""

    def build(context, builder, signature, values):
        return builder.inttoptr(values[0], context.get_value_type(signature.return_type))

    return intrinsic(lambda context, address: (types.CPointer(kind)(types.intp), build))


_floats, _integers = _pointer_to(types.float32), _pointer_to(types.int64)


@njit(inline="always")
def _vector(start, steps, text, head, token, size):
    """The numbers of one token, side by side in memory, of a tensor that begins at `start`."""
    place = text * steps[1] + head * steps[2] + token * steps[3]
    return carray(_floats(start + 4 * place), (size,))


@njit(inline="always")
def _added(plan, which, text, head, token, size):
    return _vector(plan[which, 0], plan[which], text, head, token, size)


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


@njit(
    types.void(*[types.intp] * 5, types.float32, types.intp),
    parallel=True,
    fastmath=FASTER,
    cache=True,
)
def _attend(plan, q, k, v, out, scale, threads):
    plan = carray(_integers(plan), (10, 6))
    texts, heads, of_keys = plan[SIZES, 0], plan[SIZES, 1], plan[SIZES, 2]
    keys, near, channels = plan[SIZES, 3], plan[SIZES, 4], plan[SIZES, 5]
    far, many = keys - near, texts * heads
    for thread in prange(threads):
        for each in range(thread * many // threads, (thread + 1) * many // threads):
            text, head = each // heads, each % heads
            shared = head * of_keys // heads  # the head of the keys
            query, moved = np.zeros(channels, np.float32), np.zeros(channels, np.float32)
            _add(query, scale, _vector(q, plan[Q], text, head, 0, channels))
            _add(moved, scale, _vector(q, plan[Q], text, head, 0, channels))
            if plan[END, 0]:
                _add(moved, np.float32(1), _added(plan, END, text, head, 0, channels))
            scores, most = np.empty(keys, np.float32), LEAST
            for j in range(keys):
                scores[j] = _dot(moved, _vector(k, plan[K], text, shared, j, channels))
            if plan[QUERY_ROWS, 0]:
                for j in range(near):
                    scores[far + j] += _dot(
                        query, _added(plan, QUERY_ROWS, text, head, j, channels)
                    )
            if plan[KEY_ROWS, 0]:
                for j in range(near):
                    key = _vector(k, plan[K], text, shared, far + j, channels)
                    scores[far + j] += _dot(key, _added(plan, KEY_ROWS, text, head, j, channels))
            if plan[ROW, 0]:
                _add(scores, np.float32(1), _added(plan, ROW, text, head, 0, keys))
            for j in range(keys):
                most = max(most, scores[j])
            total, mean = np.float32(0), np.zeros(channels, np.float32)
            for j in range(keys):
                scores[j] = exp(scores[j] - most)
                total += scores[j]
            total = total if total != 0 else np.float32(1)  # every score is −∞: 0, as torch has it
            for j in range(keys):
                _add(mean, scores[j], _vector(v, plan[V], text, shared, j, channels))
            if plan[VALUE_ROWS, 0]:
                for j in range(near):
                    _add(mean, scores[far + j], _added(plan, VALUE_ROWS, text, head, j, channels))
            result = carray(_floats(out + 4 * each * channels), (channels,))
            for i in range(channels):
                result[i] = mean[i] / total
            if plan[VALUE_END, 0]:
                _add(result, np.float32(1), _added(plan, VALUE_END, text, head, 0, channels))


def check() -> None:
    """Try the kernel. Raises RuntimeError for a wrong sum, or threads that only one may call."""
    x = torch.ones(1, 2, 3, 4)
    q, none = x[:, :, :1], [None] * 6
    out = ByNumba(lambda *_: 0 * q, q, x, x, 0.5, *none)(q, x, x)
    if out.tolist() != q.tolist():
        raise RuntimeError(f"it gives {out.tolist()} for ones")
    if numba.threading_layer() not in ("omp", "tbb"):
        raise RuntimeError(f"its threads are those of {numba.threading_layer()}, not of OpenMP")
