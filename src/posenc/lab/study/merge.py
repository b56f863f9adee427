"""Merge the databases of several jobs that each ran a part of one study."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from posenc.lab.study import environment, store
from posenc.lab.study.lock import locked
from posenc.lab.study.store import Contents, Store, StoreError


def merge(folder: Path, parts: Sequence[Path]) -> int:
    """Copy the training runs of several studies into one; return the number of new runs.

    The parts are unchanged. Before anything is written, raises StoreError for a part of another
    plan, version or code, and for a cell that has different outcomes in two stores.
    """
    whole = store.read(folder) if store.exists(folder) else Contents((), (), {}, {})
    held = set(whole.records)
    contents = [(part, store.read(part)) for part in parts]
    for part, other in contents:
        whole = _joined(whole, other, part)
    with locked(folder):
        writer = Store(folder)
        try:
            (*_, (digest, text)) = whole.plans
            for deviation in whole.deviations:
                if deviation not in writer.contents.deviations:
                    writer.register(digest, text, {}, deviation)
            writer.register(digest, text, whole.sources)
            new = [record for name, record in whole.records.items() if name not in held]
            for record in new:
                writer.add(record)
            copy_times(writer, parts, {record.cell.digest for record in new})
        finally:
            writer.close()
    return len(new)


def _joined(whole: Contents, other: Contents, part: Path) -> Contents:
    if not other.plans or (whole.plans and whole.plans[-1] != other.plans[-1]):
        raise StoreError(
            f"{part} must have results of the same plan as the other folders, got another plan or"
            " none. Merge only results of one plan."
        )
    if changed := environment.changes(whole.sources, other.sources):
        raise StoreError(
            f"{part} must be made with the same versions and code as the folders before it, got"
            f" other versions or code: {changed}. Leave out this folder, or run this part again"
            " with the same versions."
        )
    for name in whole.records.keys() & other.records.keys():
        one, twice = whole.records[name], other.records[name]
        if (one.outcomes, one.failure) != (twice.outcomes, twice.failure):
            raise StoreError(
                f"{part} must have the same outcome of {one.cell.task} {one.cell.name}, seed"
                f" {one.cell.seed}, as the folders before it, got a different outcome. The cause"
                " may be a processor that rounds differently. Leave out one of these folders."
            )
    return replace(
        whole,
        plans=other.plans,
        deviations=list(dict.fromkeys([*whole.deviations, *other.deviations])),
        sources=environment.merged(whole.sources, other.sources),
        records={**other.records, **whole.records},
    )


def copy_times(writer: Store, parts: Sequence[Path], cells: set[str]) -> None:
    """Copy the times of training runs from the stores of other studies to `writer`.

    Times of runs that are not in `cells` are left out.
    """
    for part in parts:
        for line in store.times(part if part.is_dir() else part.parent):
            if "cell" not in line or line["cell"] in cells:
                writer.clock(**line)
