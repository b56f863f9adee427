"""Benchmark of a training step of `posenc study` with every encoding of the catalogue.

The limit is NoPE in the same model; a ratio of 1.25 means 0.8 of its tokens per second. Targets are
0.9 of NoPE's speed for additive and rotary encodings, and 0.67 for biases. Encodings that read the
layer's input, or a vector for each pair of tokens, have no target. The target for NoPE with rounded
products, the `precision` "bfloat16" of a plan, is 0.6 of its time, on processors that support it.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import count

from benchmarks.results import OURS, BenchTable, Target, table
from benchmarks.timing import timed
from posenc.catalog import CATALOG
from posenc.lab.study import tasks
from posenc.lab.study.build import build
from posenc.lab.study.cell import PROFILES, Cell
from posenc.lab.study.tasks import Task
from posenc.lab.study.train import adamw, take_step
from posenc.properties.card import Card

LIMIT = "NoPE"
SPEEDS = {"additive": 0.9, "rotary": 0.9, "bias": 0.67}  # shares of NoPE's tokens a second
ROUNDED, ROUNDED_TARGET = f"{OURS} NoPE, bfloat16", 0.6
TASK = "language"


def time_study_steps(
    profile: str, rounds: int, budget: float, cards: Sequence[Card] = CATALOG
) -> BenchTable:
    """Time training steps of a profile of `posenc study`; `cards` must contain NoPE."""
    task, sizes = tasks.find(TASK), PROFILES[profile]
    steps = {_row(card): _step(Cell(TASK, card.slug, 1, profile=sizes), task) for card in cards}
    steps[ROUNDED] = _step(Cell(TASK, "nope", 1, profile=sizes, precision="bfloat16"), task)
    times = timed(steps, rounds, budget)
    case = (
        f"a step of {TASK}, profile {profile}: {sizes.layers} layers, {sizes.heads} heads of"
        f" {sizes.width // sizes.heads}, {sizes.batch} × {task.trained} tokens"
    )
    result = table("study", case, LIMIT, times, {})
    targets = {_row(card): (card.name, 1 / speed) for card in cards for speed in _speed(card)}
    targets[ROUNDED] = "NoPE in bfloat16", ROUNDED_TARGET
    for name, (what, target) in targets.items():
        row = result.row(name)
        assert row is not None
        result.targets.append(Target(f"{what}, step / {LIMIT}'s", row.ratio, target))
    return result


def _row(card: Card) -> str:
    return LIMIT if card.name == LIMIT else f"{OURS} {card.name}"


def _speed(card: Card) -> Iterator[float]:
    """Yield the target speed for an encoding, as a share of NoPE's speed, if there is a target."""
    if card.family in SPEEDS and "on_hidden" not in card.make(16, 4).acts_on:
        yield SPEEDS[card.family]


def _step(cell: Cell, task: Task) -> Callable[[], object]:
    """Return a function that runs the next training step in each of its calls."""
    model, numbers = build(cell, len(task.vocabulary)), count()
    optimizer = adamw(model, cell.profile)
    return lambda: take_step(next(numbers), model, optimizer, cell, task)
