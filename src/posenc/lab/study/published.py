"""Published length-generalisation curves, for comparison with the curves of a study.

Kazemnejad et al. 2023, "The Impact of Positional Encoding on Length Generalization in
Transformers", arXiv:2305.19466: exact match, computed from the files of single runs that the
authors released. Press et al. 2022, "Train Short, Test Long", arXiv:2108.12409, table 2: perplexity
of WikiText-103, on texts that do not overlap.
"""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Point:
    length: int
    value: float
    deviation: float | None = None  # standard deviation over seeds; None: not known


@dataclass(frozen=True)
class PublishedCurves:
    """The published curves of one task, keyed by the catalogue name of each encoding."""

    task: str
    paper: str
    arxiv: str
    source: str  # place in the paper, or the data from which the numbers were computed
    setting: str
    measure: str
    trained: int
    curves: Mapping[str, Sequence[Point]]

    @property
    def percent(self) -> bool:
        return self.measure.endswith("%")


def published(task: str) -> PublishedCurves | None:
    """Return the published curves of the task with this name, or None."""
    return next((curves for curves in PUBLISHED if curves.task == task), None)


_FILE = Path(__file__).with_suffix(".toml")
PUBLISHED = tuple(
    PublishedCurves(
        **one
        | {"curves": {name: [Point(*x) for x in each] for name, each in one["curves"].items()}}
    )
    for one in tomllib.loads(_FILE.read_text("utf-8"))["curves"]
)
