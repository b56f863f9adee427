"""Reuse of baseline training runs, which are the same for every encoding that a suite measures.

With the same versions and code on the same processor, these runs are equal to the bit, so they are
copied from the stores of an earlier run of the suite.
"""

from collections.abc import Mapping
from pathlib import Path

from posenc.lab.arena.suite import is_entry
from posenc.lab.study import analysis, environment, execute, store
from posenc.lab.study.lock import locked
from posenc.lab.study.merge import copy_times
from posenc.lab.study.plan import MOST_SEEDS, Plan
from posenc.lab.study.store import Contents, Record, Store

SAME = ("posenc", "torch", "code", "processor", "device")  # sources that must be equal


def reuse(plan: Plan, folder: Path, earlier: Path, device: Mapping[str, str]) -> int:
    """Copy the baseline training runs of an earlier study into the store of this study.

    - `plan`: plan of the study
    - `folder`: folder of the study
    - `earlier`: folder of the same study of another encoding
    - `device`: device of the study, as `environment.device` returns it

    Returns the number of copied training runs: 0 if the earlier ones were made with other versions
    or code, or on another processor or device.
    """
    if not store.exists(earlier):
        return 0
    held = store.read(earlier)
    here = environment.describe(plan, device)
    if any(held.sources.get(name) != here.get(name) for name in SAME):
        return 0
    with locked(folder):
        writer = Store(folder)
        try:
            new = [x for x in _baselines(plan, held) if x.cell.digest not in writer.finished]
            for record in new:
                writer.add(record)
            copy_times(writer, [earlier], {record.cell.digest for record in new})
        finally:
            writer.close()
    return len(new)


def _baselines(plan: Plan, held: Contents) -> list[Record]:
    """Return the stored training runs of a plan, except those of the measured encoding."""
    rates = analysis.chosen_rates(plan, held)
    cells = [cell for cell in execute.cells_of(plan) if not is_entry(cell.name)]
    if plan.rates:
        cells = [
            execute.with_rate(cell, rates)
            for cell in cells
            if cell.seed > MOST_SEEDS or (cell.task, cell.name) in rates
        ]
    return [held.records[cell.digest] for cell in cells if cell.digest in held.records]
