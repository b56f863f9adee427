"""Position ids of text with pictures, video and sound, by the rules of vision-language models.

A text is split into runs of tokens of one kind. In runs of text and sound, ids grow by one per
token on all axes. A picture that starts at s has the ids (s, s + row, s + column), a video
(s + time, s + row, s + column), and the rule states where the next run starts. Generated tokens add
`delta` = largest id + 1 − tokens to their index (Qwen2-VL, arXiv:2409.12191, section 2.1).
"""

from collections.abc import Iterator, Sequence
from itertools import groupby
from math import ceil
from typing import Any

import torch
from torch import Tensor

from posenc.core.positions import grid as cells_of
from posenc.positions.canvas import canvas_ids
from posenc.positions.grids import SOUND, TEXT, VIDEO, Grid, Grids, Sizes
from posenc.positions.rules import MultimodalRule, rule_of
from posenc.support.arguments import brief

__all__ = ["multimodal"]


def multimodal(
    kinds: Tensor,
    rule: Any,
    images: Sizes = (),
    videos: Sizes = (),
    merge: int | None = None,
    seconds: Sequence[float] | Tensor | None = None,
    mask: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Return the position ids of texts with pictures, video and sound, and the offset for decoding.

    - `kinds`: (batch, token), the kind of each token: 0 text, 1 picture, 2 video, 3 sound, as
      `mm_token_type_ids` of transformers; MiniCPM-V also needs its marks: 4 a mark or a line break,
      5 the mark before a slice
    - `rule`: a `model_type` such as "qwen2_5_vl", a layout such as "videorope", a config (a mapping
      or an object of transformers), or a `MultimodalRule`
    - `images`: frames, rows and columns (1, h, w) of each picture, in patches, in the order of the
      batch
    - `videos`: frames, rows and columns (t, h, w) of each video, in patches
    - `merge`: patches along each side that become one token; None: the number of the rule
    - `seconds`: seconds from one frame to the next, for each video, if the rule has ids per second
    - `mask`: (batch, token), 1 for tokens and 0 for padding; None: no padding

    Returns `ids`, (batch, token, axis), positions for encodings with several axes, and `delta`,
    (batch,): the token that is generated after n tokens, padding not counted, has the id
    n + `delta` on all axes. Raises ValueError if grids, kinds and seconds contradict each other.

    >>> ids, delta = multimodal(torch.tensor([[0, 1, 1, 1, 1, 0]]), "qwen2_vl", images=[(1, 4, 4)])
    >>> ids[0].tolist()
    [[0, 0, 0], [1, 1, 1], [1, 1, 2], [1, 2, 1], [1, 2, 2], [3, 3, 3]]
    >>> delta
    tensor([-2])
    """
    found = rule_of(rule)
    kinds = _checked(kinds, found)
    real = _real(mask, kinds)
    grids = Grids(found, images, videos, merge, seconds)
    ids = torch.full((*kinds.shape, len(found.axes)), found.padding, dtype=found.dtype)
    delta = torch.zeros(len(kinds), dtype=found.dtype)
    for text, (row, keep) in enumerate(zip(kinds.cpu(), real.cpu(), strict=True)):
        if keep.any():
            row = row[keep]
            one = canvas_ids(row, grids) if found.canvas else _numbered(row, found, grids)
            ids[text, keep] = one
            last = one[:, 0].max() if found.after == "time" else one.max()
            last = last.ceil() if found.span is not None else last
            delta[text] = last + 1 - len(one) if found.counts else 0
    grids.refuse_left_over()
    return ids.to(kinds.device), delta.to(kinds.device)


def _numbered(row: Tensor, rule: MultimodalRule, grids: Grids) -> Tensor:
    """Return the position ids of one text without padding, (token, axis)."""
    runs, done, start = list(_runs(row, rule, grids)), [], 0
    mixed = [False, *((kinds == SOUND).any() and grid is not None for kinds, grid in runs), False]
    for (kinds, grid), before, after in zip(runs, mixed, mixed[2:], strict=False):
        line = torch.arange(len(kinds), dtype=rule.dtype) + start
        if grid is None and rule.marks > 1:
            # The marks before a block of video and sound share one id, and so do those after it
            line[1:] -= int(before)
            line[-1] -= int(after)
        ids = line[:, None].repeat(1, len(rule.axes))
        if grid is not None:
            ids = _placed(ids, kinds, grid, rule, start)
        done.append(ids)
        start = _next(ids, grid, rule, start)
    return torch.cat(done)


def _next(ids: Tensor, grid: Grid | None, rule: MultimodalRule, start: float) -> float:
    """Return the id of the first token after a run of text, picture, video or sound tokens."""
    if rule.after == "tokens":
        return start + len(ids)
    if grid is None or rule.after == "last":
        return ids[-1].max().item() + 1
    if rule.after == "side":
        return start + max(grid.h, grid.w)
    if rule.span is not None:
        return start + ceil(rule.span)
    t, h, w = rule.steps
    frames = int(grid.times[-1]) * t
    return (
        start
        + 1
        + (frames if rule.after == "time" else max(frames, (grid.h - 1) * h, (grid.w - 1) * w))
    )


def _placed(ids: Tensor, kinds: Tensor, grid: Grid, rule: MultimodalRule, start: float) -> Tensor:
    """Return the position ids of a picture, or of a video with its interleaved sound tokens."""
    frame, row, column = cells_of(len(grid.times), grid.h, grid.w).unbind(-1)
    heard = kinds == SOUND
    marks = (len(kinds) - int(heard.sum()) - grid.tokens) // 2
    seen = torch.arange(len(kinds))[~heard][marks : len(kinds) - marks]
    t, h, w = rule.steps
    time = grid.times[frame] * t + start
    first: float | Tensor = start if rule.offset else 0
    if rule.centred:
        row, column, first = row - (grid.h - 1) // 2, column - (grid.w - 1) // 2, time
    columns = {"t": time, "h": row * h + first, "w": column * w + first}
    columns |= {"tokens": ids[seen, 0], "pictures": torch.full_like(row, grid.number)}
    if rule.span is not None:
        columns["span"] = start - 1 + rule.span * (torch.arange(len(row)) + 1) / len(row)
    places = torch.stack([columns[axis] for axis in rule.axes], -1)
    ids[heard] = ids[: int(heard.sum())].clone()
    ids[seen] = places
    return ids


def _runs(row: Tensor, rule: MultimodalRule, grids: Grids) -> Iterator[tuple[Tensor, Grid | None]]:
    """Yield each run of consecutive tokens of one kind, with the grid of its picture or video.

    A video and its interleaved sound form one run.
    """
    hears = SOUND in rule.kinds
    for kind, group in groupby(row.tolist(), lambda kind: min(kind, VIDEO) if hears else kind):
        run = torch.tensor(list(group))
        if kind == TEXT or (run == SOUND).all():
            yield run, None
        elif hears and kind == VIDEO:
            yield run, grids.next(kind, int((run == VIDEO).sum()), exactly=True)
        else:
            while len(run):
                grid = grids.next(kind, len(run))
                # A run of Hunyuan may begin and end with a mark
                size = grid.tokens + 2 * (rule.newline and len(run) == grid.tokens + 2)
                yield run[:size], grid
                run = run[size:]


def _checked(kinds: Tensor, rule: MultimodalRule) -> Tensor:
    if not isinstance(kinds, Tensor) or kinds.ndim != 2 or kinds.is_floating_point():
        raise TypeError(
            f"`kinds` must be a tensor of whole numbers (batch, token), got {brief(kinds)}."
            " Pass `mm_token_type_ids`."
        )
    wrong = sorted(set(kinds.unique().tolist()) - set(rule.kinds))
    if wrong:
        raise ValueError(
            f"`kinds` must contain only {', '.join(map(str, rule.kinds))} for {rule.name}, got"
            f" {wrong[0]}. Use another rule, or check the kinds."
        )
    return kinds.long()


def _real(mask: Tensor | None, kinds: Tensor) -> Tensor:
    if mask is None:
        return torch.ones_like(kinds, dtype=torch.bool)
    if not isinstance(mask, Tensor) or mask.shape != kinds.shape:
        raise ValueError(
            f"`mask` must have the shape of `kinds`, {tuple(kinds.shape)}, got {brief(mask)}."
            " Pass the attention mask of the tokenizer."
        )
    return mask.bool()
