"""Find the pairs that break long texts: swap the angles of one band, and see what comes back.

A model that was trained on L tokens reads n > L of them. The pairs of one band are slowed by n / L,
so that none of their angles is one it has never met ("slowed"), or do not turn at all ("still");
the others stay as they are, and nothing is trained. In bits per character,

    recovered = (bits(n) − bits(n, swapped)) / (bits(n) − bits(L))

1 where the band alone broke it, 0 where it had no part in it, below 0 where it is needed. Models of
a study are those that `posenc study --keep` left in its folder.
"""

import csv
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import deepcopy
from dataclasses import asdict, dataclass
from math import isfinite
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch

from posenc.encodings.rotary.rope import RoPE
from posenc.lab.study import own_code, tasks
from posenc.lab.study.cell import Cell
from posenc.lab.study.evaluate import evaluate
from posenc.lab.study.execute import MODELS, file_of
from posenc.lab.study.kept import Kept, load
from posenc.lab.study.model import Transformer
from posenc.lab.study.statistics import Interval, interval
from posenc.lab.study.tasks import Task
from posenc.support.arguments import count

How = Literal["slowed", "still"]
COLUMNS = "encoding", "seed", "length", "first", "end", "how", "bits", "recovered"


@dataclass(frozen=True)
class Swap:
    """The bits per character of a text of `length`, with the pairs of one band swapped."""

    length: int
    pairs: tuple[int, int]  # the first, and the one after the last
    how: How
    bits: float
    recovered: float


def swapped(model: Transformer, pairs: slice, factor: float) -> Transformer:
    """A copy of a model whose RoPE turns these pairs `factor` times as slowly; inf: not at all."""
    copy = deepcopy(model)
    for layer in copy.attentions():
        rope = layer.encoding
        if not isinstance(rope, RoPE) or rope.axes > 1:
            raise ValueError(
                f"bands are those of a RoPE of one axis, this model has {type(rope).__name__}."
            )
        theta = rope.theta.detach().clone()
        theta[pairs] /= factor
        layer.encoding = RoPE(
            theta, rope.dim, rope.gain, rope.layout, rope.trailing, rope.logit_gain
        )
    return copy


def swaps(
    model: Transformer, cell: Cell, task: Task, lengths: tuple[int, ...], bands: int = 4
) -> Iterator[Swap]:
    """Swap each of so many bands, from the fastest pairs to the slowest, at each length.

    Raises ValueError for a task that is not graded in bits, or a length that is not beyond L.
    """
    task = task.at(cell.trained, cell.tested)
    if not task.in_bits or task.both_ways:
        raise ValueError(f"bands are measured in bits per character, not by {task.name!r}.")
    if not lengths or min(lengths) <= task.trained:
        raise ValueError(
            f"`lengths` must be beyond the trained one, {task.trained}, got {list(lengths)}."
        )
    pairs = len(_theta(model))
    if pairs % count(bands, "bands"):
        raise ValueError(f"`bands` must divide the {pairs} pairs, got {bands}.")
    size = pairs // bands

    def bits(tested: Transformer, n: int) -> float:
        return evaluate(tested, cell, task, (n,))["sliding", n].double().mean().item()

    within = bits(model, task.trained)
    for n in lengths:
        broken = bits(model, n)
        if broken == within or not isfinite(broken - within):
            raise ValueError(
                f"bands are of a model that is worse at {n} than at {task.trained}, this one has"
                f" {broken:.3g} and {within:.3g} bits: it has nothing to recover."
            )
        for first in range(0, pairs, size):
            factors: dict[How, float] = {"slowed": n / task.trained, "still": torch.inf}
            for how, factor in factors.items():
                after = bits(swapped(model, slice(first, first + size), factor), n)
                recovered = (broken - after) / (broken - within)
                yield Swap(n, (first, first + size), how, after, recovered)


class KeptSwap(NamedTuple):
    """A swap in a model that a study kept."""

    encoding: str
    seed: int
    swap: Swap


@dataclass(frozen=True)
class Recovery:
    """The share of the loss that one band recovers, over seeds, which are drawn anew."""

    encoding: str
    length: int
    pairs: tuple[int, int]
    how: How
    recovered: Interval
    by_seed: Sequence[float]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def swap_kept(
    folder: Path,
    encodings: Sequence[str] = (),
    times: Sequence[int] = (2, 4),
    bands: int = 4,
    progress: Callable[[str, int, int], None] = lambda doing, done, of: None,
    allow_code: own_code.Allowed = (),
) -> list[KeptSwap]:
    """Swap the bands of every RoPE of a study that was kept, at so many times the trained length.

    `encodings` are the labels to take, none of them: all. A RoPE in which some pairs do not turn is
    left out. Code that a model names is run if `allow_code` names it too. Raises CodeRefused where
    it does not, and ValueError where none is kept.
    """
    paths = sorted((folder / MODELS).glob("*.safetensors"))
    kept = [load(path, allow_code) for path in paths]
    own_code.check((entry.cell.task for entry in kept), allow_code, folder)
    chosen = [
        entry for entry in kept if _fits(entry) and (not encodings or entry.cell.name in encodings)
    ]
    if not chosen:
        raise ValueError(
            f"{folder} has kept no model with a RoPE whose pairs all turn, of a task that is graded"
            " in bits: run the study with --keep."
        )
    chosen.sort(key=lambda entry: (entry.cell.name, entry.cell.seed))
    kept_swaps = []
    for done, entry in enumerate(chosen):
        name, task = entry.cell.name, _task(entry)
        progress(f"{name} {entry.cell.seed}", done, len(chosen))
        lengths = tuple(n * task.trained for n in times)
        for swap in swaps(entry.model, entry.cell, task, lengths, bands):
            kept_swaps.append(KeptSwap(name, entry.cell.seed, swap))
    return kept_swaps


def _task(kept: Kept) -> Task:
    return tasks.find(kept.cell.task, file_of(kept.cell)).at(kept.cell.trained, kept.cell.tested)


def _fits(kept: Kept) -> bool:
    task, theta = _task(kept), _theta(kept.model)
    graded = task.in_bits and not task.both_ways and not kept.cell.extend
    return graded and theta.dim() == 1 and len(theta) > 0 and bool((theta > 0).all())


def write_csv(kept_swaps: Iterable[KeptSwap], path: Path) -> int:
    """Write swaps into a new CSV file. Returns the number of rows."""
    with open(path, "x", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        rows = 0
        for rows, (name, seed, swap) in enumerate(kept_swaps, 1):  # noqa: B007
            numbers = f"{swap.bits:.6f}", f"{swap.recovered:.6f}"
            writer.writerow([name, seed, swap.length, *swap.pairs, swap.how, *numbers])
    return rows


def read_csv(path: Path) -> list[KeptSwap]:
    """Read swaps from such a file."""
    kept_swaps = []
    with open(path, newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            pairs = int(row["first"]), int(row["end"])
            how: How = "still" if row["how"] == "still" else "slowed"
            numbers = float(row["bits"]), float(row["recovered"])
            swap = Swap(int(row["length"]), pairs, how, *numbers)
            kept_swaps.append(KeptSwap(row["encoding"], int(row["seed"]), swap))
    return kept_swaps


def recoveries(kept_swaps: Iterable[KeptSwap]) -> list[Recovery]:
    """Average over seeds, for each encoding, length, band and way."""
    by_seed: dict[tuple[str, int, tuple[int, int], How], list[float]] = defaultdict(list)
    for name, _, swap in kept_swaps:
        by_seed[name, swap.length, swap.pairs, swap.how].append(swap.recovered)
    return [
        Recovery(*place, interval([torch.tensor([x]) for x in values]), values)
        for place, values in by_seed.items()
    ]


def _theta(model: Transformer) -> torch.Tensor:
    rope = next(model.encodings())
    return rope.theta if isinstance(rope, RoPE) else torch.empty(0)
