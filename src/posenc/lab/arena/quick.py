"""A first look at an encoding: two seeds of a small study, compared with stored baselines.

`first_look.json` has the plan and the results of `studies/content-or-place-10` of the repository.
The plan is run with the encoding in place of its rows, so the stored rows were trained on the same
texts with the same seeds.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path
from typing import Any

from posenc.lab.arena.suite import ENTRY
from posenc.lab.study import analysis, execute, store
from posenc.lab.study.analysis import Analysis
from posenc.lab.study.plan import Plan, PlanRow

STORED = files("posenc.lab.arena") / "first_look.json"
SEEDS = 2


@dataclass(frozen=True)
class FirstLook:
    """The results of one encoding on one task: accuracy by length, parameters and step time."""

    task: str
    row: str
    trained: int  # the longest text in training, L
    seeds: int
    means: dict[int, float]  # by length, the mean over seeds
    parameters: int | None
    seconds: float | None  # median time of a step


def stored() -> tuple[Plan, list[FirstLook]]:
    """Read the plan and the results of the baselines that are stored in the package."""
    content = json.loads(STORED.read_text("utf-8"))
    rows = [
        FirstLook(**row | {"means": {int(n): mean for n, mean in row["means"].items()}})
        for row in content["rows"]
    ]
    return Plan.stored(content["plan"]), rows


def results(found: Analysis) -> list[FirstLook]:
    """Return the results of each encoding on each task for which a seed has been trained."""
    return [
        FirstLook(
            row.task, row.encoding, row.trained, len(row.seeds), dict(row.means), row.parameters,
            row.seconds,
        )
        for row in found.rows if row.trained is not None and row.means
    ]  # fmt: skip


def plan_of(encoding: str, baseline: Plan) -> Plan:
    """Return the baselines' plan with two seeds, and with `encoding` as its only encoding."""
    row = PlanRow(ENTRY, encoding, {}, "plain", "", "")
    return replace(
        baseline, encodings=(row,), seeds=SEEDS, contrast=(), positive="", negative="", withdraw=""
    )


def run(
    encoding: str,
    folder: Path,
    progress: Callable[[Any], None],
    **settings: Any,
) -> list[FirstLook]:
    """Train the encoding; return its results, followed by those of the baselines."""
    plan, baselines = stored()
    execute.study(plan_of(encoding, plan), folder, progress=progress, pilot=True, **settings)
    return [*results(analysis.analyse(store.read(folder))), *baselines]


def lines(found: Sequence[FirstLook]) -> list[str]:
    """Return the lines of a table for each task: accuracy by length, parameters and step time."""
    written = []
    for task in dict.fromkeys(row.task for row in found):
        rows = [row for row in found if row.task == task]
        lengths = sorted(rows[0].means)[::2]
        heads = ["row", "seeds", *(f"n={n}" for n in lengths), "parameters", "ms a step"]
        table = [heads, *(_cells(row, lengths) for row in rows)]
        widths = [max(len(line[column]) for line in table) for column in range(len(heads))]
        written.append(f"{task}, % right, trained to n = {rows[0].trained}")
        written += ["  ".join(map(str.rjust, line, widths)) for line in table]
    return written


def _cells(row: FirstLook, lengths: Sequence[int]) -> list[str]:
    shares = [f"{100 * row.means[n]:.0f}" if n in row.means else "" for n in lengths]
    time = "" if row.seconds is None else f"{1_000 * row.seconds:.0f}"
    parameters = "" if row.parameters is None else f"{row.parameters:,}"
    return [row.row, str(row.seeds), *shares, parameters, time]
