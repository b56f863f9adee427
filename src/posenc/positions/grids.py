"""Validate the sizes of pictures and videos, and match them to their tokens in a batch."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from posenc.positions.rules import MultimodalRule
from posenc.support.arguments import brief, count, number

Sizes = Sequence[Sequence[int]] | Tensor
TEXT, PICTURE, VIDEO, SOUND = range(4)
ARGUMENT = {PICTURE: "images", VIDEO: "videos"}
NAMES = {PICTURE: "picture", VIDEO: "video"}


class Grid(NamedTuple):
    """One picture or video: the position ids of its frames, and the rows and columns of a frame."""

    number: int
    times: Tensor  # ids of the frames
    h: int
    w: int

    @property
    def tokens(self) -> int:
        return len(self.times) * self.h * self.w


class Grids:
    """The pictures and videos of a batch; each call of `next` returns one of them as a `Grid`."""

    def __init__(
        self, rule: MultimodalRule, images: Sizes, videos: Sizes, merge: Any, seconds: Any
    ) -> None:
        self.rule = rule
        self.merge = count(rule.merge if merge is None else merge, "merge")
        self.given = {
            PICTURE: _grids(images, "images", self.merge),
            VIDEO: _grids(videos, "videos", self.merge, rule.merge_time),
        }
        self.seconds = _seconds(seconds, len(self.given[VIDEO]), rule)
        for grid in self.given[PICTURE]:
            if grid[0] != 1:
                raise ValueError(
                    f"`images` must have sizes (1, h, w), got {grid}. Pass a video in `videos`."
                )
        if rule.frames:
            self.given[VIDEO] = [(1, h, w) for t, h, w in self.given[VIDEO] for _ in range(t)]
        self.used = dict.fromkeys(self.given, 0)

    def next(self, kind: int, tokens: int, exactly: bool = False) -> Grid:
        """Return the `Grid` of the next picture or of the next video, as `kind` requires.

        Raises ValueError if it needs more than `tokens` tokens or, with `exactly`, fewer.
        """
        number, grids = self.used[kind], self.given[kind]
        if number == len(grids):
            raise ValueError(
                f"`{ARGUMENT[kind]}` must have the size (t, h, w) of each {NAMES[kind]} in `kinds`,"
                f" got {self._counted(kind)}. The next {tokens} tokens of kind {kind} have no size."
                " Pass the sizes for all texts of the batch."
            )
        self.used[kind] += 1
        t, h, w = grids[number]
        times = torch.arange(t // self.rule.merge_time if kind == VIDEO else t)
        if kind == VIDEO and self.rule.per_second is not None:
            times = _times(times, self.seconds[number], self.rule)
        newline = int(self.rule.newline)
        grid = Grid(number, times, h // self.merge, w // self.merge + newline)
        if grid.tokens > tokens or (exactly and grid.tokens < tokens):
            raise ValueError(
                f"`{ARGUMENT[kind]}` must fit the tokens in `kinds`, got size {(t, h, w)}, which is"
                f" {grid.tokens} tokens with `merge`={self.merge}, for {tokens} tokens of kind"
                f" {kind}. Check `merge` and the order of the sizes."
            )
        return grid

    def refuse_left_over(self) -> None:
        """Raise ValueError if the size of a picture or video was passed, but it has no tokens."""
        for kind, grids in self.given.items():
            if self.used[kind] < len(grids):
                raise ValueError(
                    f"`kinds` must have tokens of kind {kind} for each size in `{ARGUMENT[kind]}`,"
                    f" got {self._counted(kind)}, and tokens for {self.used[kind]}. Remove the"
                    f" sizes of each {NAMES[kind]} whose tokens were cut off."
                )

    def _counted(self, kind: int) -> str:
        apart = kind == VIDEO and self.rule.frames
        return f"{len(self.given[kind])} {'frames' if apart else 'sizes'}"


def _times(frames: Tensor, seconds: float, rule: MultimodalRule) -> Tensor:
    """Return the position id of each video frame, computed in float32 as in the model."""
    each, rate = torch.tensor(seconds, dtype=torch.float32), rule.per_second or 1
    times = frames * (rate * each) if rule.rounding == "interval" else frames * each * rate
    return times if rule.rounding == "none" else times.long()


def _grids(grids: Sizes, name: str, merge: int, frames: int = 1) -> list[tuple[int, int, int]]:
    """Check the sizes (t, h, w) of pictures or videos, and return them as integers.

    t must be divisible by `frames`, and h and w by `merge`.
    """
    rows = grids.tolist() if isinstance(grids, Tensor) else [tuple(grid) for grid in grids]
    found = []
    for row in rows:
        if len(row) != 3:
            raise ValueError(
                f"`{name}` must be sizes of 3 numbers (t, h, w) in patches, got {len(row)} numbers"
                f" in {brief(str(tuple(row)))}. Pass a picture as (1, h, w)."
            )
        t, h, w = (count(n if isinstance(n, int) else int(n), name) for n in row)
        for size, step, what in ((h, merge, "rows"), (w, merge, "columns"), (t, frames, "frames")):
            if size % step:
                raise ValueError(
                    f"`{name}` must have a number of {what} that is a multiple of {step}, got"
                    f" {size} in {(t, h, w)}."
                    " Pass sizes in patches, not in tokens or pixels."
                )
        found.append((t, h, w))
    return found


def _seconds(seconds: Any, videos: int, rule: MultimodalRule) -> list[float]:
    """Return the seconds between frames of each video.

    Raises ValueError if the rule numbers frames by time and a video has no seconds, or the reverse.
    """
    given = [] if seconds is None else torch.as_tensor(seconds).flatten().tolist()
    if rule.per_second is None and given:
        raise ValueError(
            f"`seconds` must be None for {rule.name}, whose position ids count frames, got"
            f" {len(given)} numbers. Leave out `seconds`."
        )
    if rule.per_second is not None and len(given) != videos:
        raise ValueError(
            f"`seconds` must have a number for each video of {rule.name}, got {len(given)} for"
            f" {videos} videos. Pass the seconds from one frame to the next."
        )
    return [float(number(each, "seconds")) for each in given]
