"""Replace the positional encoding of a loaded vision tower of transformers within a `with` block.

    with applied(tower, Swin(heads=12, window=14, class_token=True)):
        tower(pixel_values)

The tower's tables of patches are set to 0, its rotations become the identity, and `posenc.attend`
computes the attention of all layers. An encoding that acts on embeddings is written into a table
instead. A tower is rejected, whatever its name, unless

    route       its output is unchanged when posenc computes its attention, with its own encoding
    no others   without its tables and rotations, permuted patches give the permuted output

Class tokens and registers come before the patches, which are in row-major order.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from math import prod
from operator import attrgetter
from typing import Any, NoReturn

import torch
from torch import Tensor, nn

from posenc.attention.attend import attend
from posenc.core.encoding import Encoding, Sum, leaves
from posenc.core.positions import grid
from posenc.core.shapes import Points, Positions
from posenc.encodings.nope import NoPE
from posenc.models.hf.discovery import (
    configs,
    equal_but_rounding,
    evaluating,
    hooked,
    identity_rotation,
    in_one_line,
)
from posenc.models.hf.masks import mask_of
from posenc.models.hf.registry import CALL, NAME, register

REMEDY = "Pass a tower of transformers 5 that takes `pixel_values` of one size."


@dataclass(frozen=True)
class Tower:
    """Parts of a vision tower that `applied` replaces: position tables and rotary modules."""

    sides: tuple[int, int]  # rows and columns of patches
    prefix: int  # class tokens and registers before the patches
    tables: tuple[nn.Parameter, ...]  # rows for all tokens, or for patches
    rotary: tuple[nn.Module, ...]  # modules that return cosines and sines

    def points(self, axes: int) -> Positions | Points:
        """Return the positions of all tokens; tokens before the patches get (−1, −1)."""
        if axes == 1:
            return torch.arange(self.prefix + prod(self.sides))
        return torch.cat((torch.full((self.prefix, 2), -1), grid(*self.sides)))


@contextmanager
def applied(
    tower: nn.Module, encoding: Encoding, points: Positions | Points | None = None
) -> Iterator[nn.Module]:
    """Apply an encoding to all layers of a vision tower within a `with` block.

    - `tower`: a loaded model of transformers without an encoding applied, such as `ViTModel`
    - `encoding`: an encoding of one or two axes
    - `points`: positions of all tokens, (token,) or (token, axis); None: (row, column) of patches,
      and (−1, −1) for class tokens and registers; 0, 1, 2, … for an encoding of one axis

    Yields the tower. Raises TypeError for a tower whose encoding cannot be replaced, and ValueError
    for an encoding that does not match. The tower is restored on exit.

    >>> from transformers import ViTConfig, ViTModel
    >>> from posenc import AxialRoPE
    >>> sizes = dict(hidden_size=32, intermediate_size=32, num_hidden_layers=1)
    >>> tower = ViTModel(ViTConfig(**sizes, num_attention_heads=2, image_size=32, patch_size=8))
    >>> with applied(tower, AxialRoPE(16)):
    ...     tower(torch.randn(1, 3, 32, 32)).last_hidden_state.shape
    torch.Size([1, 17, 32])
    """
    if hasattr(tower, CALL):
        raise ValueError(
            "`tower` must not have an encoding applied already. Leave the `with` block of the"
            " other encoding first."
        )
    for part in leaves(encoding):
        if "on_hidden" in part.acts_on:
            raise ValueError(
                f"`encoding` must depend on positions only, got {type(part).__name__}, which reads"
                " the input of each layer."
            )
    parts = discover(tower)
    points = parts.points(encoding.axes) if points is None else points
    with _replaced(tower, parts, encoding, points.to(next(tower.parameters()).device)):
        yield tower


@torch.no_grad()
def discover(tower: nn.Module) -> Tower:
    """Return the parts of a vision tower that depend on positions.

    - `tower`: a loaded model of transformers

    Raises TypeError for a tower that cannot be used; see the docstring of this module.
    """
    with evaluating(tower):
        try:
            return _discover(tower)
        except _UnsuitableTower:
            raise
        except Exception as error:
            # The code of a model may raise anything
            why = f"does not run on an image of the size in its config ({in_one_line(error)})"
            _refuse(tower, why)


class _UnsuitableTower(TypeError):
    """Raised for a tower whose encoding cannot be replaced."""


def _refuse(tower: nn.Module, why: str) -> NoReturn:
    name = type(tower).__name__
    raise _UnsuitableTower(f"{name} {why}, so its encoding cannot be replaced. {REMEDY}")


def _discover(tower: nn.Module) -> Tower:
    convolution: Any = next((module for module in tower.modules() if _divides(module)), None)
    size = getattr(getattr(tower, "config", None), "image_size", None)
    if convolution is None or size is None:
        _refuse(tower, "has no convolution of patches, or no `image_size` in its config")
    height, width = (size, size) if isinstance(size, int) else size
    sides = height // convolution.kernel_size[0], width // convolution.kernel_size[1]
    generator = torch.Generator().manual_seed(0)
    shape = prod(sides), convolution.in_channels, *convolution.kernel_size
    patches = torch.randn(shape, generator=generator).to(convolution.weight)
    order = torch.randperm(len(patches), generator=generator).to(patches.device)
    rotary: list[nn.Module] = []

    def find_rotary(module: nn.Module, args: Any, kwargs: Any, out: Any) -> None:
        if isinstance(out, tuple) and len(out) == 2 and all(isinstance(x, Tensor) for x in out):
            cos, sin = out
            if cos.shape == sin.shape and ((cos**2 + sin**2 - 1).abs() < 0.05).all():
                rotary.append(module)

    with hooked(tower.modules(), find_rotary):
        expected = _output(tower, patches, sides)
    prefix = expected.shape[1] - len(patches)
    if prefix < 0:
        _refuse(tower, "returns fewer tokens than it has patches")
    # Registers may be inserted after the rows are added
    lengths = range(len(patches), len(patches) + prefix + 1)
    parts = Tower(sides, prefix, tuple(_tables(tower, lengths)), tuple(rotary))
    with _replaced(tower, Tower(sides, prefix, (), ()), NoPE(), None) as calls:
        routed = _output(tower, patches, sides)
    if not calls:
        _refuse(tower, "computes attention outside transformers' attention registry")
    if not equal_but_rounding(routed, expected):
        _refuse(tower, "has another output when posenc computes its attention")
    with _replaced(tower, parts, NoPE(), None):
        plain, moved = (_output(tower, x, sides) for x in (patches, patches[order]))
    moved_to = torch.cat((torch.arange(prefix, device=order.device), order + prefix))
    if not equal_but_rounding(moved, plain[:, moved_to]):
        _refuse(tower, "uses positions in another way than a rotation or a table")
    return parts


def _divides(module: nn.Module) -> bool:
    """Test whether a module is a convolution that divides an image into patches."""
    return isinstance(module, nn.Conv2d) and module.kernel_size == module.stride != (1, 1)


def _output(tower: nn.Module, patches: Tensor, sides: tuple[int, int]) -> Tensor:
    """Run the tower on an image, given as patches; return hidden states, (1, token, channel)."""
    rows = patches.unflatten(0, sides).permute(2, 0, 3, 1, 4)  # channel, row, y, column, x
    return tower(rows.flatten(3).flatten(1, 2).unsqueeze(0), return_dict=True)[0]


def _tables(tower: nn.Module, lengths: range) -> Iterator[nn.Parameter]:
    """Yield the parameters that may be position tables: those with a row count in `lengths`."""
    for module in tower.modules():
        if not isinstance(module, nn.Linear | nn.Conv2d | nn.LayerNorm):
            for table in module.parameters(recurse=False):
                rows = table.shape[-2] if table.ndim > 1 else 0
                if rows in lengths and table.numel() == rows * table.shape[-1]:
                    yield table


@contextmanager
def _replaced(
    tower: nn.Module, parts: Tower, encoding: Encoding, points: Tensor | None
) -> Iterator[list[nn.Module]]:
    """Apply an encoding within a `with` block, and yield a list of the modules that attended."""
    register()
    calls: list[nn.Module] = []
    added = [part for part in leaves(encoding) if "on_embeddings" in part.acts_on]
    others = [part for part in leaves(encoding) if part not in added]
    rest = others[0] if len(others) == 1 else Sum(*others) if others else NoPE()
    at = rest.prepare(points) if others and points is not None else None

    def call(module: nn.Module, q: Tensor, k: Tensor, v: Tensor, seen: Any, scale: float,
             dropout: float, causal: bool = False, **more: Any) -> Tensor:  # fmt: skip
        calls.append(module)
        if seen is not None and not (seen.all() if seen.dtype is torch.bool else not seen.any()):
            _refuse(tower, "adds a bias or a mask to its scores")
        mask = mask_of(None, len(q), q.shape[2], k.shape[2], causal)
        return attend(q, k, v, rest, at, mask=mask, scale=scale, dropout=dropout, **more)

    with ExitStack() as undo:
        for path in configs(tower):
            config = attrgetter(f"{path}.config".lstrip("."))(tower)
            undo.callback(setattr, config, "_attn_implementation", config._attn_implementation)
            config._attn_implementation = NAME
        for module in tower.modules():
            setattr(module, CALL, partial(call, module))
            undo.callback(delattr, module, CALL)
        for module in parts.rotary:
            hook = module.register_forward_hook(identity_rotation, with_kwargs=True)
            undo.callback(hook.remove)
        for table in parts.tables:
            undo.callback(table.data.copy_, table.detach().clone())
            table.data.zero_()
        for part in added:
            _write(tower, parts, part, points)
        yield calls


def _write(tower: nn.Module, parts: Tower, encoding: Encoding, points: Any) -> None:
    """Write an encoding that acts on embeddings into the tower's own position table, in place."""
    if not parts.tables:
        raise ValueError(
            f"`encoding` must not be added to the embeddings of a {type(tower).__name__} without a"
            f" position table, got {type(encoding).__name__}. Pass an encoding of queries and keys,"
            " such as RoPE."
        )
    table = parts.tables[0].data.view(-1, parts.tables[0].shape[-1])
    x = table.new_zeros(1, parts.prefix + prod(parts.sides), table.shape[-1])
    with torch.no_grad():
        table += encoding.on_embeddings(x, encoding.prepare(points))[0, -len(table) :]
