"""Published length-generalisation curves, for comparison with the curves of a study.

Kazemnejad et al. 2023, "The Impact of Positional Encoding on Length Generalization in
Transformers", arXiv:2305.19466: exact match, computed from the files of single runs that the
authors released. Press et al. 2022, "Train Short, Test Long", arXiv:2108.12409, table 2: perplexity
of WikiText-103, on texts that do not overlap.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


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


def _exact_match(
    task: str, table: Mapping[str, Mapping[int, tuple[float, float | None]]]
) -> PublishedCurves:
    return PublishedCurves(
        task,
        "Kazemnejad et al. 2023",
        "2305.19466",
        "the authors' files of each run, three seeds",
        "107 M parameters, L = 20",
        "texts all right, %",
        20,
        {
            name: [Point(n, value, deviation) for n, (value, deviation) in points.items()]
            for name, points in table.items()
        },
    )


PERPLEXITY = {
    512: (20.05, 20.07, 19.65, 19.73),
    712: (24.86, 19.79, 19.10, 19.14),
    1012: (43.54, 21.37, 18.79, 18.73),
    1512: (76.23, 25.99, 18.91, 18.52),
    2512: (132.41, 31.58, 20.41, 18.41),
    3512: (178.97, 35.54, 22.91, 18.40),
}
PUBLISHED = (
    _exact_match(
        "copy",
        {
            "nope": {21: (79, 0), 24: (72, 0), 30: (17, 8)},
            "t5": {21: (80, 0), 24: (75, 1), 30: (56, 2)},
            "alibi": {21: (82, 0), 24: (75, 0), 30: (23, 6)},
            "rope": {21: (4, 5), 24: (0, None), 30: (0, None)},
            "sinusoidal": {21: (54, 7), 24: (0, None), 30: (0, None)},
        },
    ),
    _exact_match(
        "copy-constant",
        {
            "nope": {24: (99, None), 30: (99, 1), 40: (96, 2)},
            "t5": {24: (99, None), 30: (94, 3), 40: (21, 9)},
            "alibi": {24: (98, None), 30: (0, None), 40: (0, None)},
            "rope": {24: (0, None), 30: (0, None), 40: (0, None)},
            "sinusoidal": {24: (0, None), 30: (0, None), 40: (0, None)},
        },
    ),
    _exact_match(
        "reverse",
        {
            "nope": {21: (99, None), 24: (80, 5), 27: (8, 1)},
            "t5": {21: (99, None), 24: (85, 3), 27: (12, 8)},
            "alibi": {21: (100, None), 24: (45, 13), 27: (0, None)},
            "rope": {21: (79, 18), 24: (13, 19), 27: (0, None)},
            "sinusoidal": {21: (46, 19), 24: (0, None), 27: (0, None)},
        },
    ),
    PublishedCurves(
        "language",
        "Press et al. 2022",
        "2108.12409",
        "table 2, one seed",
        "247 M parameters, L = 512, WikiText-103 in words",
        "perplexity",
        512,
        {
            name: [Point(n, row[column]) for n, row in PERPLEXITY.items()]
            for column, name in enumerate(("sinusoidal", "rope", "t5", "alibi"))
        },
    ),
)
