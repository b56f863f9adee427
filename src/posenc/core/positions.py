"""Create positions of sequences, packed texts, padding and grids; check positions from callers."""

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
FAR = 2**62  # positions from −FAR to FAR − 1 have offsets that fit into int64
INTEGERS = {
    *(torch.int8, torch.int16, torch.int32, torch.int64),
    *(torch.uint8, torch.uint16, torch.uint32, torch.uint64),
}
# Up to these limits a dtype represents all whole numbers exactly
CONSECUTIVE = {torch.float32: 2**24, torch.float64: 2**53}


def sequence(length: int, start: int = 0, device: torch.device | str | None = None) -> Positions:
    """Return the positions of a text, (token,): start, start + 1, …

    - `length`: number of tokens
    - `start`: position of the first token, 0 by default; with a cache, the number of cached tokens
    - `device`: device of the tensor; None: torch's default

    >>> sequence(3, start=5)
    tensor([5, 6, 7])
    """
    length = count(length, "length", 0)
    _refuse_too_many(length, device=device)
    start = count(start, "start", -FAR, max(-FAR, FAR - length))
    return torch.arange(start, start + length, device=device)


def packed(lengths: Sequence[int]) -> Positions:
    """Return the positions of documents packed into one sequence; each document starts at 0.

    - `lengths`: tokens of each document

    Use `masks.documents` to mask the other documents.

    >>> packed([3, 2])
    tensor([0, 1, 2, 0, 1])
    """
    lengths = counts(lengths)
    _refuse_too_many(sum(lengths))
    return torch.cat([torch.arange(n) for n in lengths])


def documents(lengths: Sequence[int]) -> Positions:
    """Return the document id of each token in a packed sequence, as `masks.documents` expects.

    - `lengths`: tokens of each document

    >>> documents([3, 2])
    tensor([0, 0, 0, 1, 1])
    """
    lengths = counts(lengths)
    _refuse_too_many(sum(lengths))
    return torch.arange(len(lengths)).repeat_interleave(torch.tensor(lengths))


def padded(lengths: Sequence[int], side: Side = "right", tokens: int | None = None) -> Positions:
    """Return positions of padded texts, (batch, token): each text starts at 0, padding is 0.

    - `lengths`: tokens of each text
    - `side`: side of the padding, "right" (the default) or "left"
    - `tokens`: tokens of each row; None: as many as the longest text

    Mask the padding with `masks.padding`, which has the same arguments. Raises ValueError for a
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
    """Return the number of padding tokens needed to extend a text of `length` to `tokens` tokens.

    `tokens` is by default the longest of `lengths`.
    """
    tokens = max(lengths) if tokens is None else count(tokens, "tokens", 0)
    if length > tokens:
        raise ValueError(
            f"`tokens` must be at least the longest text, {length} tokens, got {tokens}."
        )
    return tokens - length


def counts(lengths: Sequence[int], name: str = "lengths", of: str = "text") -> list[int]:
    """Check a list of sizes, one for each text or axis, and return them as ints."""
    if isinstance(lengths, str | bytes) or not isinstance(lengths, Sequence | Tensor):
        raise TypeError(f"`{name}` must be a list of whole numbers, got {brief(lengths)}.")
    numbers = lengths.tolist() if isinstance(lengths, Tensor) else list(lengths)
    if not isinstance(numbers, list) or any(isinstance(n, list | tuple | Tensor) for n in numbers):
        raise TypeError(
            f"`{name}` must be one whole number for each {of}, got {brief(lengths)}. If it is a"
            " mask of tokens, pass `mask.sum(-1)`."
        )
    if not numbers:
        raise ValueError(f"`{name}` must have a number for each {of}, got an empty list.")
    return [count(n, name, 0) for n in numbers]


def _refuse_too_many(*shape: int, device: torch.device | str | None = None) -> None:
    """Raise ValueError if positions of this shape exceed memory; do nothing in a traced graph."""
    if not traced():
        room("a tensor of positions", *shape, dtype=torch.int64, device=device)


def checked(side: Side) -> Side:
    if not isinstance(side, str) or side not in ("left", "right"):
        raise ValueError(f"`side` must be 'left' or 'right', got {side!r}.")
    return side


def grid(*sizes: int) -> Points:
    """Return the points of an image or volume in row-major order, (∏ sizes, len(sizes)).

    - `sizes`: cells along each axis, one argument each

    >>> grid(2, 2).tolist()
    [[0, 0], [0, 1], [1, 0], [1, 1]]
    """
    if len(sizes) == 1 and isinstance(sizes[0], list | tuple | Tensor):
        raise TypeError(
            f"`sizes` must be whole numbers, one argument each, got {brief(sizes[0])}. Write"
            " `grid(14, 14)`, or `grid(*sizes)` for a list."
        )
    sizes = tuple(counts(sizes, "sizes", "axis"))
    _refuse_too_many(prod(sizes), len(sizes))
    return torch.cartesian_prod(*map(torch.arange, sizes)).reshape(-1, len(sizes))


def centred(*sizes: int) -> Points:
    """Return the centres of the patches of a `grid` as coordinates from −1 to 1, in float64.

    - `sizes`: cells along each axis, one argument each

    A point of the image has the same coordinates for every patch size. Put tokens without a place
    in the image, such as a class token or registers, at the origin, where rotations do nothing.

    >>> centred(2, 4)[:2].tolist()
    [[-0.5, -0.75], [-0.5, -0.25]]
    """
    return (2 * grid(*sizes) + 1).double() / torch.tensor(sizes).double() - 1


def folded(tokens: int, axes: int) -> Positions | Points:
    """Return the first `tokens` points of a line (`axes` = 1), a square (2) or a cube (3).

    - `tokens`: number of positions
    - `axes`: coordinates of a position, 1 for a sequence

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
    """Draw increasing random positions below `most` for one training step, of shape (token,).

    - `tokens`: tokens of the text
    - `most`: positions to draw from, 0 … most − 1, far more than `tokens`
    - `generator`: source of the random numbers; None: torch's own

    Short texts then train the positions of long ones. Raises ValueError if `most` is less than
    `tokens`.

    >>> drawn = randomised(4, 1000)
    >>> drawn.shape, bool((drawn.diff() > 0).all())
    (torch.Size([4]), True)

    Ruoss et al. 2023, arXiv:2305.16843; google-deepmind/randomized_positional_encodings at e8c6474.
    """
    tokens = _fewer(tokens, most)
    return torch.randperm(most, generator=generator)[:tokens].sort().values


def skipped(tokens: int, most: int, generator: Generator | None = None) -> Positions:
    """Draw positions that skip a random gap (PoSE), of shape (token,), for one training step.

    - `tokens`: tokens of the text
    - `most`: length to train for; all positions are below it
    - `generator`: source of the random numbers; None: torch's own

    The first 1 to ⌈tokens / 2⌉ tokens have positions 0, 1, 2, …; a random number is added to the
    positions of the others. In the authors' code the second part is also a later piece of the
    document.

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
    """Add one random shift per text to its positions, for one training step (SHAPE).

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
            f"`most` must be at least `tokens`, got {most} positions for {tokens} tokens. Pass a"
            " larger `most`, so that each token can have its own position."
        )
    return tokens


def whole(values: Tensor, name: str) -> Tensor:
    """Check that positions or offsets are integers, as needed by encodings that index a table."""
    if values.is_floating_point():
        raise TypeError(f"`pos` must be integers for `{name}`, got {values.dtype}. Pass integers.")
    return values


def exact(pos: Tensor, name: str = "pos") -> Tensor:
    """Check positions and return them; integers become int64, so that offsets do not wrap around.

    Raises TypeError for objects that are not tensors, for booleans, and for 16-bit floats, which
    skip whole numbers above 256 or 2048. Raises ValueError for NaN and infinity, for floats beyond
    the exact range of their dtype, and for integers whose offsets exceed int64. Integers on
    accelerators are not checked, because reading them would wait for the device.
    """
    if not isinstance(pos, Tensor):
        raise TypeError(
            f"`{name}` must be a tensor of positions, got {brief(pos)}. Pass `torch.tensor(…)` or"
            " the result of a function of `posenc.positions`."
        )
    if not pos.ndim:
        raise ValueError(
            f"`{name}` must have an axis of tokens, got the number {pos}. Pass a vector."
        )
    if pos.dtype is torch.int64:
        if is_eager_cpu(pos) and pos.numel():
            if pos.numel() == 1:
                low = high = pos.item()
            else:
                low, high = map(Tensor.item, pos.aminmax())
            if not -FAR <= low <= high < FAR:
                raise ValueError(
                    f"`{name}` must be from −2⁶² to 2⁶² − 1, because the difference of two larger"
                    f" numbers can exceed int64, got {low} … {high}. Subtract the same number from"
                    " all positions."
                )
        return pos
    if pos.dtype is torch.bool:
        raise TypeError(
            f"`{name}` must be positions, got a boolean mask. Pass `mask.cumsum(-1)`, for instance."
        )
    if pos.dtype in CONSECUTIVE:
        return _countable(pos, name)
    if pos.is_floating_point() or pos.is_complex():
        most = {torch.bfloat16: 256, torch.float16: 2048}.get(pos.dtype)
        why = f", which skips whole numbers above {most}" if most else ""
        raise TypeError(
            f"`{name}` must be integers, float32 or float64, got {pos.dtype}{why}. Pass integers."
        )
    integers = pos.long()
    if pos.dtype is torch.uint64 and has_values(pos) and bool((integers < 0).any()):
        raise ValueError(
            f"`{name}` must be at most 2⁶³ − 1, got larger numbers. Pass positions that fit into"
            " int64."
        )
    return exact(integers, name) if pos.dtype is torch.uint64 else integers


def arithmetic_progression(pos: Tensor, step: int = 0) -> tuple[int, int] | None:
    """Return (start, step) if all texts and heads have the positions start, start + step, …

    Otherwise return None. `step` is the result for a single position, which fits any step.
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
    """Return (step, shift) if pᵢ − pⱼ = step · (i − j) + shift for all query-key pairs (i, j).

    Otherwise, or if positions cannot be read, return None.
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
    """Raise ValueError unless `pos` are points with `axes` coordinates."""
    if pos.ndim < 2 or pos.shape[-1] != axes:
        raise ValueError(
            f"`pos` must be points (…, token, {axes}), because {what} {axes} axes, got shape"
            f" {tuple(pos.shape)}. Use `positions.grid`, for instance."
        )


def per_head(pos: Tensor, axes: int = 1) -> Tensor:
    """Reshape positions to (batch or 1, head or 1, token), as hooks expect them.

    Points keep another axis for their coordinates.

    >>> per_head(torch.arange(3)).shape, per_head(torch.zeros(2, 3)).shape
    (torch.Size([1, 1, 3]), torch.Size([2, 1, 3]))
    """
    trailing = 1 if axes == 1 else 2
    if pos.ndim == trailing:
        return pos[None, None]
    return pos.unsqueeze(1) if pos.ndim == trailing + 1 else pos


def exact_copy(pos: Tensor, name: str = "pos") -> Tensor:
    """Return `exact(pos)` as a copy, so that later writes to `pos` do not change it."""
    integers = exact(pos, name)
    return integers.clone() if integers is pos else integers


def _countable(pos: Tensor, name: str) -> Tensor:
    if pos.numel() and has_values(pos):
        most = CONSECUTIVE[pos.dtype]
        low, high = (float(end) for end in pos.detach().aminmax())
        # This form also refuses NaN
        if not -most <= low <= high <= most:
            raise ValueError(
                f"`{name}` must be finite and within ±{most:,}, the range in which {pos.dtype} has"
                f" all whole numbers, got {low:g} … {high:g}. Pass integers for large positions."
            )
    return pos
