"""Positions are data: the caller passes them, no encoding counts tokens by itself."""

from collections.abc import Sequence
from math import prod
from typing import Literal

import torch
from torch import Generator, Tensor

from posenc.compat.tracing import has_values, is_eager_cpu, traced
from posenc.core.shapes import Points, Positions
from posenc.support.arguments import brief, count, room

__all__ = [
    "centred",
    "documents",
    "folded",
    "grid",
    "moved",
    "packed",
    "padded",
    "randomised",
    "sequence",
    "skipped",
]

Side = Literal["left", "right"]
FAR = 2**62  # whole positions from −FAR to FAR − 1 have offsets that int64 holds
INTEGERS = {
    *(torch.int8, torch.int16, torch.int32, torch.int64),
    *(torch.uint8, torch.uint16, torch.uint32, torch.uint64),
}
CONSECUTIVE = {torch.float32: 2**24, torch.float64: 2**53}  # whole numbers that a dtype tells apart


def sequence(length: int, start: int = 0, device: torch.device | str | None = None) -> Positions:
    """Return the positions of a text, (token,): start, start + 1, …

    - `length`: tokens of the text
    - `start`: position of the first, 0 by default: how many tokens a key cache already holds
    - `device`: device of the tensor; None: torch's default

    >>> sequence(3, start=5)
    tensor([5, 6, 7])
    """
    length = count(length, "length", 0)
    _refuse_too_many(length, device=device)
    start = count(start, "start", -FAR, max(-FAR, FAR - length))
    return torch.arange(start, start + length, device=device)


def packed(lengths: Sequence[int]) -> Positions:
    """Return the positions of documents in one row, each from 0.

    - `lengths`: tokens of each document

    `masks.documents` keeps the documents apart.

    >>> packed([3, 2])
    tensor([0, 1, 2, 0, 1])
    """
    lengths = counts(lengths)
    _refuse_too_many(sum(lengths))
    return torch.cat([torch.arange(n) for n in lengths])


def documents(lengths: Sequence[int]) -> Positions:
    """Return the document that each token of a packed row belongs to, for `masks.documents`.

    - `lengths`: tokens of each document

    >>> documents([3, 2])
    tensor([0, 0, 0, 1, 1])
    """
    lengths = counts(lengths)
    _refuse_too_many(sum(lengths))
    return torch.arange(len(lengths)).repeat_interleave(torch.tensor(lengths))


def padded(lengths: Sequence[int], side: Side = "right", tokens: int | None = None) -> Positions:
    """Return the positions of a batch of texts, (batch, token): each from 0, padding at 0.

    - `lengths`: tokens of each text
    - `side`: "right", the default, or "left": where the padding goes
    - `tokens`: tokens of each row; None: those of the longest text

    Mask the padding with `masks.padding`, which takes the same arguments. Raises ValueError for a
    text longer than `tokens`.

    >>> padded([3, 2], side="left")
    tensor([[0, 1, 2],
            [0, 0, 1]])
    """
    step, lengths = 1 if checked(side) == "right" else -1, counts(lengths)
    _refuse_too_many(len(lengths), max(lengths) + filling(max(lengths), lengths, tokens))
    gaps = [torch.zeros(filling(n, lengths, tokens), dtype=torch.long) for n in lengths]
    texts = [torch.arange(n) for n in lengths]
    return torch.stack([torch.cat(row[::step]) for row in zip(texts, gaps, strict=True)])


def filling(length: int, lengths: Sequence[int], tokens: int | None) -> int:
    """The tokens of filling that a text of `length` needs."""
    tokens = max(lengths) if tokens is None else count(tokens, "tokens", 0)
    if length > tokens:
        raise ValueError(f"a text of {length} tokens does not fit into `tokens`={tokens}.")
    return tokens - length


def counts(lengths: Sequence[int], name: str = "lengths", of: str = "text") -> list[int]:
    """The tokens of each text, at least one text; or the cells along each axis."""
    if isinstance(lengths, str | bytes) or not isinstance(lengths, Sequence | Tensor):
        raise TypeError(f"`{name}` must be a list of whole numbers, got {brief(lengths)}.")
    numbers = lengths.tolist() if isinstance(lengths, Tensor) else list(lengths)
    if not isinstance(numbers, list) or any(isinstance(n, list | tuple | Tensor) for n in numbers):
        raise TypeError(
            f"`{name}` must be one whole number for each {of}, got {brief(lengths)}: of a mask of"
            " tokens pass `mask.sum(-1)`."
        )
    if not numbers:
        raise ValueError(f"`{name}` must be a number for each {of}, and not empty.")
    return [count(n, name, 0) for n in numbers]


def _refuse_too_many(*shape: int, device: torch.device | str | None = None) -> None:
    """Refuse positions that memory does not hold; a graph serves any number of them."""
    if not traced():
        room("a tensor of positions", *shape, dtype=torch.int64, device=device)


def checked(side: Side) -> Side:
    if not isinstance(side, str) or side not in ("left", "right"):
        raise ValueError(f"`side` is where the filling goes: 'left' or 'right', got {side!r}.")
    return side


def grid(*sizes: int) -> Points:
    """Return the cells of an image or volume in row-major order, (∏ sizes, len(sizes)).

    - `sizes`: cells along each axis, one argument each

    >>> grid(2, 2).tolist()
    [[0, 0], [0, 1], [1, 0], [1, 1]]
    """
    if len(sizes) == 1 and isinstance(sizes[0], list | tuple | Tensor):
        raise TypeError(
            f"`sizes` must be whole numbers, one after another, got {brief(sizes[0])}:"
            " `grid(14, 14)`, and of a list `grid(*sizes)`."
        )
    sizes = tuple(counts(sizes, "sizes", "axis"))
    _refuse_too_many(prod(sizes), len(sizes))
    return torch.cartesian_prod(*map(torch.arange, sizes)).reshape(-1, len(sizes))


def centred(*sizes: int) -> Points:
    """Return the centres of the cells of a `grid` that spans −1 … 1 on each axis, in float64.

    - `sizes`: cells along each axis, one argument each

    However fine the patches, a place in the image keeps its coordinates. Tokens that stand nowhere
    in the image, a class token or registers, belong at the origin, where rotations do nothing.

    >>> centred(2, 4)[:2].tolist()
    [[-0.5, -0.75], [-0.5, -0.25]]
    """
    return (2 * grid(*sizes) + 1).double() / torch.tensor(sizes).double() - 1


def folded(tokens: int, axes: int) -> Positions | Points:
    """Return a sequence; with more axes, lay it on a square page line by line, or into a cube.

    - `tokens`: number of positions
    - `axes`: numbers that make a position

    >>> folded(5, axes=2).tolist()
    [[0, 0], [0, 1], [0, 2], [1, 0], [1, 1]]
    """
    tokens, axes = count(tokens, "tokens", 0), count(axes, "axes", most=64)
    if axes == 1:
        return sequence(tokens)
    side = round(tokens ** (1 / axes))
    side += side**axes < tokens
    return grid(*[side] * axes)[:tokens]


def randomised(tokens: int, most: int, generator: Generator | None = None) -> Positions:
    """Draw positions of a text for one step of training, (token,): in order, each below `most`.

    - `tokens`: tokens of the text
    - `most`: positions to draw from, 0 … most − 1, far more than `tokens`
    - `generator`: source of the random numbers; None: torch's own

    So short texts train positions of long ones. Raises ValueError for more tokens than positions.

    >>> drawn = randomised(4, 1000)
    >>> drawn.shape, bool((drawn.diff() > 0).all())
    (torch.Size([4]), True)

    Ruoss et al. 2023, arXiv:2305.16843; google-deepmind/randomized_positional_encodings at e8c6474.
    """
    tokens = _fewer(tokens, most)
    return torch.randperm(most, generator=generator)[:tokens].sort().values


def skipped(tokens: int, most: int, generator: Generator | None = None) -> Positions:
    """Draw positions of a text that skips ahead once, (token,), for one step of training (PoSE).

    - `tokens`: tokens of the text
    - `most`: length to train for: the last position stays below
    - `generator`: source of the random numbers; None: torch's own

    The first 1 to ⌈tokens / 2⌉ tokens stand at 0, 1, 2, …, the others a common number further on.
    In the authors' code the second part is also another piece of its document.

    >>> steps = skipped(6, 1000).diff()
    >>> int(steps.eq(1).sum()) >= 4
    True

    Zhu et al. 2023, arXiv:2309.10400; dwzhu-pku/PoSE, src/train_pose.py at a3d4ba8.
    """
    tokens = _fewer(tokens, most)
    pos = torch.arange(tokens)
    if not tokens:
        return pos
    first = torch.randint(1, (tokens + 1) // 2 + 1, (), generator=generator)
    return pos + (pos >= first) * torch.randint(0, most - tokens + 1, (), generator=generator)


def moved(pos: Positions, most: int, generator: Generator | None = None) -> Positions:
    """Move each text by a number of its own, drawn below `most`, for one step of training (SHAPE).

    - `pos`: positions, (token,) or (batch, token)
    - `most`: numbers to draw from, 0 … most − 1
    - `generator`: source of the random numbers; None: torch's own

    >>> moved(sequence(3).expand(2, -1), 100).diff()
    tensor([[1, 1],
            [1, 1]])

    Kiyono et al. 2021, arXiv:2109.05644; butsugiri/shape, onmt/modules/embeddings.py at a2b04a2.
    """
    shape = (*exact(pos).shape[:-1], 1)
    by = torch.randint(0, count(most, "most"), shape, generator=generator)
    return exact(pos) + by.to(pos.device)


def _fewer(tokens: int, most: int) -> int:
    tokens = count(tokens, "tokens", 0)
    if tokens > count(most, "most"):
        raise ValueError(
            f"`most` must be at least `tokens`, got {most} positions for {tokens} tokens: draw them"
            " from more."
        )
    return tokens


def whole(values: Tensor, name: str) -> Tensor:
    """Check that these are whole numbers, to look something up by; TypeError for any others."""
    if values.is_floating_point():
        raise TypeError(f"`{name}` goes by whole numbers; `pos` is {values.dtype}: pass integers.")
    return values


def exact(pos: Tensor, name: str = "pos") -> Tensor:
    """Check positions and return them exact: integers as int64, so that no offset wraps around.

    Raises TypeError for what is no tensor, for 16-bit floats, which cannot count past 256 or 2048,
    and for booleans; ValueError for NaN, infinity, whole numbers that the dtype does not hold, and
    those whose offsets int64 does not hold. On accelerators integers are not looked at: that would
    wait for the device.
    """
    if not isinstance(pos, Tensor):
        raise TypeError(
            f"`{name}` must be a tensor of positions, got {brief(pos)}: pass `torch.tensor(…)`, or"
            " what a function of `posenc.positions` returns."
        )
    if not pos.ndim:
        raise ValueError(f"`{name}` must have an axis of tokens, got the number {pos}: add one.")
    if pos.dtype is torch.int64:
        if is_eager_cpu(pos) and pos.numel():
            if pos.numel() == 1:
                low = high = pos.item()
            else:
                low, high = map(Tensor.item, pos.aminmax())
            if not -FAR <= low <= high < FAR:
                raise ValueError(
                    f"`{name}` must be from −2⁶² to 2⁶² − 1, got {low} … {high}, whose offsets"
                    " would wrap around: count from somewhere nearer."
                )
        return pos
    if pos.dtype is torch.bool:
        raise TypeError(
            f"`{name}` is a boolean mask; pass positions, for instance `mask.cumsum(-1)`."
        )
    if pos.dtype in CONSECUTIVE:
        return _countable(pos, name)
    if pos.is_floating_point() or pos.is_complex():
        most = {torch.bfloat16: 256, torch.float16: 2048}.get(pos.dtype)
        why = f"cannot count past {most}" if most else "does not hold positions"
        raise TypeError(f"`{name}` is {pos.dtype}, which {why}; pass integers.")
    integers = pos.long()
    if pos.dtype is torch.uint64 and has_values(pos) and bool((integers < 0).any()):
        raise ValueError(f"`{name}` has numbers past 2⁶³ − 1: pass positions that int64 holds.")
    return exact(integers, name) if pos.dtype is torch.uint64 else integers


def arithmetic_progression(pos: Tensor, step: int = 0) -> tuple[int, int] | None:
    """Find (start, step) of whole positions at equal steps forwards, alike in all texts and heads.

    None where they are not. A single position fits any `step`.
    """
    if pos.is_floating_point() or not pos.numel():
        return None
    first = pos
    while first.ndim > 1:
        first = first[0]
    if pos.ndim > 1 and pos.numel() > len(first) and not (pos == first).all():
        return None
    if len(first) == 1:
        return int(first), step
    (start, second), last = first[:2].tolist(), int(first[-1])
    step = second - start
    if step < 1 or last != start + step * (len(first) - 1):
        return None
    alike = torch.arange(start, last + 1, step, dtype=first.dtype, device=first.device)
    return (start, step) if first.equal(alike) else None


def common_step(q_pos: Tensor, k_pos: Tensor) -> tuple[int, int] | None:
    """Find (step, shift) where the offset of query i and key j is step · (i − j) + shift.

    None where it is not, and where positions cannot be read.
    """
    if not is_eager_cpu(q_pos, k_pos):
        return None
    k = arithmetic_progression(k_pos, 1)
    q = k if q_pos is k_pos else arithmetic_progression(q_pos, k[1] if k else 1)
    if q is None or k is None:
        return None
    step = q[1] if k_pos.shape[-1] == 1 else k[1]
    return (step, q[0] - k[0]) if q[1] == step else None


def refuse_other_axes(pos: Tensor, axes: int, what: str) -> None:
    """Refuse what are no points of so many axes; `what` has them: "these frequencies have"."""
    if pos.ndim < 2 or pos.shape[-1] != axes:
        raise ValueError(
            f"{what} {axes} axes: `pos` must be points (…, token, {axes}), as `positions.grid`"
            f" makes them, got shape {tuple(pos.shape)}."
        )


def per_head(pos: Tensor, axes: int = 1) -> Tensor:
    """Return positions as hooks receive them: (batch or 1, head or 1, token), points with an axis.

    >>> per_head(torch.arange(3)).shape, per_head(torch.zeros(2, 3)).shape
    (torch.Size([1, 1, 3]), torch.Size([2, 1, 3]))
    """
    trailing = 1 if axes == 1 else 2
    if pos.ndim == trailing:
        return pos[None, None]
    return pos.unsqueeze(1) if pos.ndim == trailing + 1 else pos


def exact_copy(pos: Tensor, name: str = "pos") -> Tensor:
    """Copy what `exact` returns, if it is `pos` itself: writing to `pos` later changes nothing."""
    integers = exact(pos, name)
    return integers.clone() if integers is pos else integers


def _countable(pos: Tensor, name: str) -> Tensor:
    if pos.numel() and has_values(pos):
        most = CONSECUTIVE[pos.dtype]
        low, high = (float(end) for end in pos.detach().aminmax())
        # This form also refuses NaN
        if not -most <= low <= high <= most:
            raise ValueError(
                f"`{name}` is {low:g} … {high:g}, where {pos.dtype} tells positions apart within"
                f" ±{most:,} only: pass finite positions, and integers for large ones."
            )
    return pos
