"""The table of a rotation: how far each pair of channels turns at each position, for all layers.

    cos, sin of p·θ, times a gain        formed in float64, rounded once to float32

The same numbers are kept a second time in the form that the CPU multiplies by fastest, so that no
layer has to make it: cos + i sin for interleaved pairs, rows as wide as a head for halves.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from posenc.core.frequencies import Layout, angles, for_heads
from posenc.core.prepared import Prepared
from posenc.core.shapes import Frequencies, Points, Positions
from posenc.core.tracing import traced, visible

FEW_NUMBERS = 1 << 19  # of queries or keys: up to these it is the number of calls that counts


class Turn(Prepared, NamedTuple("Turn", [("cos", Tensor), ("sin", Tensor)])):
    """The turn of each pair, shape (*batch, 1 or head, token, pair); 1: the same for all heads."""


class Ready(Turn):
    """A `Turn` with the same numbers a second time, in the form that a CPU kernel multiplies by.

    Whatever maps over its tensors (to another device or dtype) returns a `Turn` without the forms;
    `rotate` then computes them again.
    """

    forms: tuple[Tensor, ...] = ()
    meant: tuple[str, torch.Size] | None = None  # layout; (tokens, channels), if all heads share it
    versions: tuple[int, int] | None = None  # of cos and sin, when the forms were made
    learned: tuple[tuple[Tensor, int], ...] = ()  # what cos and sin were made of, and its version

    def like(self, fields: Iterable[Any]) -> "Ready":
        """Build one from other tensors, without forms, of the same learned frequencies."""
        fresh = Ready(*fields)
        fresh.learned = self.learned
        return fresh

    @property
    def edited(self) -> bool:
        """True where cos or sin were written to since: then the forms say something else."""
        made_at = self.versions  # None: made in inference mode, where no version is counted
        return made_at is not None and made_at != (self.cos._version, self.sin._version)


def turn(
    pos: Positions | Points,
    freqs: Frequencies,
    gain: float | Tensor = 1.0,
    layout: Layout | None = None,
) -> Turn:
    """Compute gain · cos and gain · sin of p·θ; with a `layout`, `ready` for it."""
    angle = angles(pos, freqs)
    cos, sin = ((gain * f(angle)).float().to(pos.device) for f in (torch.cos, torch.sin))
    by = Turn(for_heads(cos), for_heads(sin))
    return by if layout is None else ready(by, layout)


def ready(by: Turn, layout: Layout) -> Turn:
    """Add the forms that eager code on the CPU multiplies by; all else needs cos and sin only."""
    cos = by.cos
    learned = cos.requires_grad and torch.is_grad_enabled()
    if traced() or learned or not cos.is_cpu:
        return by
    prepared = Ready(*by)
    prepared.versions = None if cos.is_inference() else (cos._version, by.sin._version)
    if layout == "interleaved":
        prepared.forms = (torch.complex(*by),)
    elif 16 * cos.numel() <= FEW_NUMBERS:  # with eight heads; beyond, rows this wide serve nobody
        prepared.forms = doubled(by)
    *heads, tokens, pairs = cos.shape
    prepared.meant = (layout, torch.Size((tokens, 2 * pairs))) if heads == [1] else None
    return prepared


def with_versions(by: Turn, *learned: Tensor) -> Turn:
    """Record the versions of learned θ in the table, so that `refuse_stale` sees a change."""
    if not all(isinstance(x, nn.Parameter) for x in learned) or not visible(*learned):
        return by
    fresh = by if type(by) is Ready else Ready(*by)
    fresh.learned = tuple((x, x._version) for x in learned if not x.is_inference())
    return fresh


def refuse_stale(by: Turn, name: str) -> None:
    if type(by) is Ready and by.learned and not torch.compiler.is_compiling():
        if any(x._version != version for x, version in by.learned):
            raise ValueError(
                f"`at` was prepared before the learned frequencies of this {name} changed, by an"
                " optimiser's step for instance: call `prepare` once in every forward."
            )


def copied(k: Tensor, table: Tensor) -> Tensor:
    """Copy keys that heads share, one for each head, where heads stand at their own positions.

    `table` is what turns them, (*batch, 1 or head, token, pair).
    """
    heads, shared = table.shape[-3], k.shape[1]
    if heads == 1 or heads == shared or heads % shared:
        return k
    return k.repeat_interleave(heads // shared, 1)


def doubled(by: Turn) -> tuple[Tensor, Tensor]:
    """Make (cos, cos) and (−sin, sin): x = (a, b) turned is x · the first + (b, a) · the second."""
    return torch.cat((by.cos, by.cos), -1), torch.cat((-by.sin, by.sin), -1)
