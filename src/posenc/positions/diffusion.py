"""Position ids of the text and the generated picture or video of a diffusion model.

A picture is a grid of patches (frame, row, column). Models differ in the origin and scale of its
axes, in the positions of the text, and in the offsets between reference pictures. The angle of a
rotation is an id times the frequency θ of its axis.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Literal

import torch
from torch import Tensor

from posenc.core.positions import grid as cells_of
from posenc.positions.rules import settings
from posenc.support.arguments import brief, count, positive
from posenc.support.names import normalise

__all__ = ["DiffusionRule", "text_and_grid"]

Shape = tuple[int, int, int]


@dataclass(frozen=True, kw_only=True)
class DiffusionRule:
    """Settings from which the position ids of a diffusion model are computed.

    - `name`: name of the model
    - `text`: ids of the text: "origin", 0 on all axes, which means no rotation; "layer", counted
      from 0 on a fourth axis; "before", counted from 1 on the first axis, with the picture after
      it; "behind", counted on all axes from the edge of the picture; "apart", without ids, because
      the model reads the text by cross-attention
    - `text_first`: True if the text is before the picture in the sequence
    - `centred`: True if rows and columns count from the middle of the picture
    - `reference`: id on the first axis of the first reference, and the step to the next; None: the
      model has no references
    - `video`: True if a grid may have several frames
    - `multiple`: text and picture are each padded to a multiple of this number
    - `fitted`: rows and columns to which every picture is scaled; None: patches are counted
    - `steps`: frames, rows and columns as fractions of the largest video, each from −1 to 1; frames
      are divided by the frames per second; None: patches are counted
    - `note`: unusual facts about the rule

    >>> DIFFUSION["Qwen-Image"].centred
    True
    """

    name: str
    text: Literal["origin", "layer", "before", "behind", "apart"]
    text_first: bool = True
    centred: bool = False
    reference: tuple[int, int] | None = None
    video: bool = True
    multiple: int = 1
    fitted: tuple[int, int] | None = None
    steps: tuple[float, float, float] | None = None
    note: str = ""


DIFFUSION = {
    name: DiffusionRule(name=name, **table) for name, table in settings("diffusion.toml").items()
}


def text_and_grid(
    text: int,
    grid: Sequence[int],
    rule: str | DiffusionRule,
    references: Sequence[Sequence[int]] = (),
    rate: float | None = None,
) -> Tensor:
    """Return the position ids of the text and the picture or video of a diffusion model.

    - `text`: tokens of the text; 0 for models that read the text by cross-attention
    - `grid`: frames, rows and columns (t, h, w) of the generated picture or video, in patches
    - `rule`: "FLUX.1", "FLUX.2", "Qwen-Image", "Z-Image", "Wan", "HunyuanVideo", "CogVideoX",
      "CogVideoX 1.5", "LTX", or a `DiffusionRule`
    - `references`: frames, rows and columns of each reference picture
    - `rate`: frames per second, for LTX only

    Returns (token, axis) in the order of the model's sequence, references last, as whole numbers,
    or as float64 if the model scales its axes. Raises ValueError for arguments that the model does
    not have.

    >>> text_and_grid(1, (1, 2, 2), "FLUX.1").tolist()
    [[0, 0, 0], [0, 0, 0], [0, 0, 1], [0, 1, 0], [0, 1, 1]]
    >>> text_and_grid(1, (1, 2, 2), "Qwen-Image").tolist()
    [[1, 1, 1], [0, -1, -1], [0, -1, 0], [0, 0, -1], [0, 0, 0]]
    """
    found = rule if isinstance(rule, DiffusionRule) else _named(rule)
    words = _filled(count(text, "text", 0), found)
    shapes = [
        _shape(grid, "grid", found),
        *(_shape(one, "references", found) for one in references),
    ]
    _refuse(found, words, len(shapes) - 1, rate)
    pictures = [_cells(shape, found, rate) for shape in shapes]
    if found.text == "before":
        pictures[0][:, 0] += words + 1
    for number, cells in enumerate(pictures[1:]):
        first, step = found.reference or (0, 0)
        cells[:, 0] += first + step * number
    cells = torch.cat(pictures)
    if found.text == "layer":
        cells = torch.nn.functional.pad(cells, (0, 1))
    cells = torch.cat([cells, cells.new_zeros(-len(cells) % found.multiple, cells.shape[1])])
    line = _text(words, shapes, found, cells)
    return torch.cat([line, cells] if found.text_first else [cells, line])


def _text(words: int, shapes: Sequence[Shape], rule: DiffusionRule, cells: Tensor) -> Tensor:
    """Return the position ids of the text tokens, (token, axis)."""
    ids, line = cells.new_zeros(words, cells.shape[1]), torch.arange(words)
    if rule.text == "behind":
        half = 2 if rule.centred else 1
        ids[:] = (max(max(h // half, w // half) for _, h, w in shapes) + line)[:, None]
    if rule.text == "before":
        ids[:, 0] = 1 + line
    if rule.text == "layer":
        ids[:, -1] = line
    return ids


def _cells(shape: Shape, rule: DiffusionRule, rate: float | None) -> Tensor:
    """Return the position ids of the patches of a picture or video, (patch, 3)."""
    cells = cells_of(*shape)
    _, h, w = shape
    if rule.centred:
        return cells - torch.tensor([0, h - h // 2, w - w // 2])
    if rule.fitted:
        axes = _fitted((h, w), rule.fitted)
        columns = (axis[cells[:, number + 1]] for number, axis in enumerate(axes))
        return torch.stack([cells[:, 0].double(), *columns], -1)
    if rule.steps and rate:
        frame, row, column = rule.steps
        return 2 * cells * torch.tensor([frame / rate, row, column]).double() - 1
    return cells


def _fitted(sizes: tuple[int, int], room: tuple[int, int]) -> list[Tensor]:
    """Return row and column coordinates of patches, fitted into a centred box of size `room`."""
    h, w = sizes
    tall = h / w > room[0] / room[1]
    inner = (room[0], round(room[0] / h * w)) if tall else (round(room[1] / w * h), room[1])
    axes = []
    for size, filled, whole in zip(sizes, inner, room, strict=True):
        start = round((whole - filled) / 2)
        end = (start + filled) * (size - 1) / size
        axes.append(torch.linspace(start, end, size, dtype=torch.float64))
    return axes


def _filled(tokens: int, rule: DiffusionRule) -> int:
    return tokens + -tokens % rule.multiple


def _named(name: object) -> DiffusionRule:
    known = {normalise(known): known for known in DIFFUSION}
    if normalise(str(name)) in known:
        return DIFFUSION[known[normalise(str(name))]]
    near = get_close_matches(normalise(str(name)), known, n=1)
    hint = f"Did you mean {known[near[0]]!r}?" if near else f"Pass one of {', '.join(DIFFUSION)}."
    raise ValueError(f"`rule` must name a diffusion model with a known rule, got {name!r}. {hint}")


def _shape(shape: Sequence[int], name: str, rule: DiffusionRule) -> Shape:
    sizes = [count(size, name) for size in shape]
    if len(sizes) != 3:
        raise ValueError(
            f"`{name}` must be 3 numbers (t, h, w) in patches, got {len(sizes)}. Pass a picture as"
            " (1, h, w)."
        )
    t, h, w = sizes
    if t > 1 and not rule.video:
        raise ValueError(f"`{name}` must have 1 frame for {rule.name}, got {t}. Pass (1, h, w).")
    return t, h, w


def _refuse(rule: DiffusionRule, words: int, references: int, rate: float | None) -> None:
    """Raise ValueError for an argument that the model does not use, or for a missing `rate`."""
    if rule.text == "apart" and words:
        raise ValueError(
            f"`text` must be 0 for {rule.name}, which reads the text by cross-attention without"
            f" positions, got {words}. Pass `text=0`."
        )
    if rule.reference is None and references:
        raise ValueError(
            f"`references` must be empty for {rule.name}, got {references}. Leave out `references`."
        )
    if rule.steps is None and rate is not None:
        raise ValueError(
            f"`rate` must be None for {rule.name}, got {brief(rate)}. Leave out `rate`."
        )
    if rule.steps is not None:
        if rate is None:
            raise ValueError(
                f"`rate` must be the frames per second of the video for {rule.name}, got None."
                " Pass 25, the default of diffusers."
            )
        positive(rate, "rate")
