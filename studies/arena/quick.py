"""A first look at an encoding: two seeds of a small study, compared with stored baselines.

The plan is that of `studies/content-or-place-10`, with the encoding in place of its rows, so the
stored rows were trained on the same texts with the same seeds.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from posenc.lab.study import analysis, execute, store
from posenc.lab.study.analysis import Analysis, Row
from posenc.lab.study.plan import Plan, PlanError, PlanRow
from studies.arena.suite import ENTRY

BASELINES = Path(__file__).parents[1] / "content-or-place-10"
SEEDS = 2


def stored() -> tuple[Plan, Analysis]:
    """Read the plan and the results of the stored baseline study.

    Raises PlanError if the folder has no plan or no cells.
    """
    contents = store.read(BASELINES)
    plan = analysis.plan_of(contents)
    if plan is None or not contents.records:
        raise PlanError(
            f"{BASELINES} must be a study with trained cells, got none. Run it with `posenc study`."
        )
    return plan, analysis.analyse(contents)


def plan_of(encoding: str, baseline: Plan) -> Plan:
    """Return the baseline's plan reduced to this encoding alone, with two seeds."""
    row = PlanRow(ENTRY, encoding, {}, "plain", "", "")
    return replace(
        baseline, encodings=(row,), seeds=SEEDS, contrast=(), positive="", negative="", withdraw=""
    )


def run(
    encoding: str,
    folder: Path,
    progress: Callable[[Any], None],
    **settings: Any,
) -> tuple[Analysis, Analysis]:
    """Train the encoding; return its results and the stored results of the baselines."""
    plan, baselines = stored()
    execute.study(plan_of(encoding, plan), folder, progress=progress, pilot=True, **settings)
    return analysis.analyse(store.read(folder)), baselines


def lines(mine: Analysis, baselines: Analysis) -> list[str]:
    """Return the lines of a table for each task: right answers by length, model size and time."""
    written = []
    for task in dict.fromkeys(row.task for row in mine.rows):
        rows = [row for found in (mine, baselines) for row in found.rows if row.task == task]
        rows = [row for row in rows if row.means]
        lengths = sorted(rows[0].means)[::2]
        heads = ["row", "seeds", *(f"n={n}" for n in lengths), "parameters", "ms a step"]
        table = [heads, *(_cells(row, lengths) for row in rows)]
        widths = [max(len(line[column]) for line in table) for column in range(len(heads))]
        written.append(f"{task}, % right, trained to n = {rows[0].trained}")
        written += ["  ".join(map(str.rjust, line, widths)) for line in table]
    return written


def _cells(row: Row, lengths: Sequence[int]) -> list[str]:
    shares = [f"{100 * row.means[n]:.0f}" if n in row.means else "" for n in lengths]
    time = "" if row.seconds is None else f"{1_000 * row.seconds:.0f}"
    parameters = "" if row.parameters is None else f"{row.parameters:,}"
    return [row.encoding, str(len(row.seeds)), *shares, parameters, time]
