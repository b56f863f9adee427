"""Export of a study's outcomes to CSV and Parquet: one row per run, protocol and text length."""

import csv
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from posenc.lab.study.store import BITS, Contents, Record
from posenc.support.extras import how_to_install

COLUMNS: tuple[str, ...] = (
    "cell", "task", "encoding", "label", "seed", "parameters", "failure", "protocol", "length",
    "kind", "prompts", "mean", "outcomes",
)  # fmt: skip


def rows(contents: Contents) -> Iterator[dict[str, Any]]:
    """Yield table rows (`COLUMNS`), one for each training run, protocol and text length.

    A cell that failed has one row, without a length.
    """
    for digest, record in contents.records.items():
        about = _about(digest, record)
        for (protocol, length), outcome in record.outcomes.items():
            values = (
                [int(x) for x in outcome.values]
                if outcome.kind == BITS
                else outcome.values.tolist()
            )
            entries = (protocol, length, outcome.kind, outcome.prompts, outcome.mean, values)
            yield about | dict(zip(COLUMNS[7:], entries, strict=True))
        if not record.outcomes:
            yield about | dict.fromkeys(COLUMNS[7:])


def write_csv(contents: Contents, path: Path) -> int:
    """Write a study's outcomes to a new CSV file, and return the number of rows.

    Right and wrong answers are written as "0110…", and other outcomes as a list.
    """
    with open(path, "x", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        number = 0
        for number, row in enumerate(rows(contents), 1):  # noqa: B007
            between = "" if row["kind"] == BITS else " "
            outcomes = between.join(map(repr, row["outcomes"] or ()))
            writer.writerow(row | {"outcomes": outcomes})
    return number


def write_parquet(contents: Contents, path: Path) -> int:
    """Write a study's outcomes to a new Parquet file, and return the number of rows.

    The outcomes are lists of float32.

    Raises ImportError, with the remedy, if pyarrow is not installed.
    """
    try:
        import pyarrow as arrow  # pyright: ignore[reportMissingImports]
        from pyarrow import parquet  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise ImportError(
            "Parquet is written by pyarrow, which is not installed. Export CSV, or"
            f" {how_to_install('parquet')}"
        ) from None
    text, integer, real = arrow.string(), arrow.int64(), arrow.float64()
    types = (
        text, text, text, text, integer, integer, text, text, integer, text, integer, real,
        arrow.list_(arrow.float32()),
    )  # fmt: skip
    table = arrow.Table.from_pylist(
        [*rows(contents)], schema=arrow.schema([*zip(COLUMNS, types, strict=True)])
    )
    with open(path, "xb") as file:
        parquet.write_table(table, file)
    return table.num_rows


def chosen(contents: Contents, names: Mapping[str, Sequence[str]]) -> Contents:
    """Select the stored runs of the named tasks and encodings; all if none is named.

    Raises LookupError for a name that no record has.
    """
    records = dict(contents.records)
    for kind, wanted in names.items():
        known = {name for record in records.values() for name in _names(record, kind)}
        for name in wanted:
            if name not in known:
                listed = ", ".join(sorted(known)) or "none"
                raise LookupError(
                    f"{kind} must be in the results, which have {listed}, got {name!r}. Name one of"
                    " these."
                )
        if wanted:
            kept = {*wanted}
            records = {k: record for k, record in records.items() if kept & _names(record, kind)}
    return Contents(contents.plans, contents.deviations, contents.sources, records, contents.path)


def _names(record: Record, kind: str) -> set[str]:
    cell = record.cell
    return {cell.task} if kind == "task" else {cell.encoding, cell.name}


def _about(digest: str, record: Record) -> dict[str, Any]:
    cell = record.cell
    entries = (digest, cell.task, cell.encoding, cell.name, cell.seed, record.parameters)
    return dict(zip(COLUMNS, (*entries, record.failure), strict=False))
