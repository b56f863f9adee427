"""Bands of rotary pairs: the share of the loss in long texts that each band causes.

A model trained on L tokens reads n > L tokens. The pairs of one band are slowed by n / L, so that
all their angles occurred in training ("slowed"), or do not rotate at all ("still"). The other pairs
are unchanged, and nothing is trained. In bits per character,

    recovered = (bits(n) − bits(n, swapped)) / (bits(n) − bits(L))

is 1 if the band causes all of the loss, 0 if it has no effect, and below 0 if it is needed. The
models are those that `posenc study --keep` saved.
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
from posenc.lab.study import tasks, user_code_gate
from posenc.lab.study.cell import Cell
from posenc.lab.study.evaluate import evaluate
from posenc.lab.study.execute import MODELS, file_of
from posenc.lab.study.model import Transformer
from posenc.lab.study.saved_models import SavedModel, load
from posenc.lab.study.statistics import Interval, interval
from posenc.lab.study.tasks import Task
from posenc.support.arguments import count

How = Literal["slowed", "still"]
COLUMNS = "encoding", "seed", "length", "first", "end", "how", "bits", "recovered"


@dataclass(frozen=True)
class Swap:
    """The bits per character at `length`, with one band of rotary pairs slowed or stopped."""

    length: int
    pairs: tuple[int, int]  # the first pair, and the one after the last
    how: How
    bits: float
    recovered: float


def swapped(model: Transformer, pairs: slice, factor: float) -> Transformer:
    """Copy a model, with some pairs of its RoPE slowed by `factor`; infinity stops them."""
    copy = deepcopy(model)
    for layer in copy.attentions():
        rope = layer.encoding
        if not isinstance(rope, RoPE) or rope.axes > 1:
            raise ValueError(
                f"the model must have a RoPE of one axis for bands, got {type(rope).__name__}."
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
    """Slow and stop each band of rotary pairs, from the fastest to the slowest, at each length.

    - `model`, `cell`, `task`: the trained model, its cell and its task
    - `lengths`: lengths of text beyond L
    - `bands`: number of bands, which must divide the number of pairs

    Raises ValueError for a task that is not graded in bits, and for a length up to L.
    """
    task = task.at(cell.trained, cell.tested)
    if not task.in_bits or task.both_ways:
        raise ValueError(f"`task` must be graded in bits per character, got {task.name!r}.")
    if not lengths or min(lengths) <= task.trained:
        raise ValueError(
            f"`lengths` must be greater than the trained length, {task.trained}, got"
            f" {list(lengths)}."
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
                f"the model must have more bits at {n} than at {task.trained}, so that a loss can"
                f" be recovered, got {broken:.3g} and {within:.3g}."
            )
        for first in range(0, pairs, size):
            factors: dict[How, float] = {"slowed": n / task.trained, "still": torch.inf}
            for how, factor in factors.items():
                after = bits(swapped(model, slice(first, first + size), factor), n)
                recovered = (broken - after) / (broken - within)
                yield Swap(n, (first, first + size), how, after, recovered)


class SavedSwap(NamedTuple):
    """The result of slowing or stopping one band of rotary pairs in a saved model."""

    encoding: str
    seed: int
    swap: Swap


@dataclass(frozen=True)
class Recovery:
    """The share of the loss that one band of rotary pairs recovers: mean over seeds, interval."""

    encoding: str
    length: int
    pairs: tuple[int, int]
    how: How
    recovered: Interval
    by_seed: Sequence[float]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def swap_saved(
    folder: Path,
    encodings: Sequence[str] = (),
    times: Sequence[int] = (2, 4),
    bands: int = 4,
    progress: Callable[[str, int, int], None] = lambda doing, done, of: None,
    allow_code: user_code_gate.Allowed = (),
) -> list[SavedSwap]:
    """Slow and stop each band of pairs in every saved RoPE model whose pairs all rotate.

    - `folder`: folder of the study
    - `encodings`: labels of encodings; empty: all
    - `times`: lengths of text as multiples of L
    - `bands`: number of bands
    - `progress`: progress function
    - `allow_code`: names of code in the models that may be run

    Raises CodeRefused for code that is not allowed, and ValueError if no model is saved.
    """
    paths = sorted((folder / MODELS).glob("*.safetensors"))
    kept = [load(path, allow_code) for path in paths]
    user_code_gate.check_allowed((entry.cell.task for entry in kept), allow_code, folder)
    chosen = [
        entry for entry in kept if _fits(entry) and (not encodings or entry.cell.name in encodings)
    ]
    if not chosen:
        raise ValueError(
            f"{folder} must have a saved model with a RoPE whose pairs all rotate, of a task that"
            " is graded in bits, got none. Run the study with --keep."
        )
    chosen.sort(key=lambda entry: (entry.cell.name, entry.cell.seed))
    saved_swaps = []
    for done, entry in enumerate(chosen):
        name, task = entry.cell.name, _task(entry)
        progress(f"{name} {entry.cell.seed}", done, len(chosen))
        lengths = tuple(n * task.trained for n in times)
        for swap in swaps(entry.model, entry.cell, task, lengths, bands):
            saved_swaps.append(SavedSwap(name, entry.cell.seed, swap))
    return saved_swaps


def _task(kept: SavedModel) -> Task:
    return tasks.find(kept.cell.task, file_of(kept.cell)).at(kept.cell.trained, kept.cell.tested)


def _fits(kept: SavedModel) -> bool:
    task, theta = _task(kept), _theta(kept.model)
    graded = task.in_bits and not task.both_ways and not kept.cell.extend
    return graded and theta.dim() == 1 and len(theta) > 0 and bool((theta > 0).all())


def write_csv(saved_swaps: Iterable[SavedSwap], path: Path) -> int:
    """Write measured swaps to a new CSV file; return the number of rows."""
    with open(path, "x", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        rows = 0
        for rows, (name, seed, swap) in enumerate(saved_swaps, 1):  # noqa: B007
            numbers = f"{swap.bits:.6f}", f"{swap.recovered:.6f}"
            writer.writerow([name, seed, swap.length, *swap.pairs, swap.how, *numbers])
    return rows


def read_csv(path: Path) -> list[SavedSwap]:
    """Read measured swaps from a file that `write_csv` has written."""
    saved_swaps = []
    with open(path, newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            pairs = int(row["first"]), int(row["end"])
            how: How = "still" if row["how"] == "still" else "slowed"
            numbers = float(row["bits"]), float(row["recovered"])
            swap = Swap(int(row["length"]), pairs, how, *numbers)
            saved_swaps.append(SavedSwap(row["encoding"], int(row["seed"]), swap))
    return saved_swaps


def recoveries(saved_swaps: Iterable[SavedSwap]) -> list[Recovery]:
    """Average the recovered share over seeds, by encoding, length, band and kind of swap."""
    by_seed: dict[tuple[str, int, tuple[int, int], How], list[float]] = defaultdict(list)
    for name, _, swap in saved_swaps:
        by_seed[name, swap.length, swap.pairs, swap.how].append(swap.recovered)
    return [
        Recovery(*place, interval([torch.tensor([x]) for x in values]), values)
        for place, values in by_seed.items()
    ]


def _theta(model: Transformer) -> torch.Tensor:
    rope = next(model.encodings())
    return rope.theta if isinstance(rope, RoPE) else torch.empty(0)
