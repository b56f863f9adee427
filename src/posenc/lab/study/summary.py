"""A study as it is handed on: its table, the plan as registered, how it was run, with what."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from posenc.lab.study import store
from posenc.lab.study.analysis import Analysis, analyse, plan_of
from posenc.lab.study.published import PublishedCurves, published
from posenc.lab.study.store import Contents
from posenc.support.provenance import Provenance, since


@dataclass(frozen=True)
class Start:
    """One time that the study was begun, or gone on with."""

    when: str
    command: str  # the command as typed; empty from Python
    commit: str | None


@dataclass(frozen=True)
class Study:
    """Contents of the page of a study."""

    analysis: Analysis
    plan: str  # plan in TOML; empty without one
    outcomes: str  # the digest of the store's contents, the same for everybody who repeats them
    sources: Mapping[str, str]  # versions, and digests of files of the user's own
    starts: Sequence[Start]
    published: Mapping[str, PublishedCurves]  # published curves by task
    provenance: Provenance  # provenance of the summary

    @property
    def title(self) -> str:
        """What was compared; never the hypothesis, which is no finding."""
        names, tasks = (
            [*dict.fromkeys(getattr(row, what) for row in self.analysis.rows)]
            for what in ("encoding", "task")
        )
        count = f"{len(names)} encodings" if len(names) > 1 else "".join(names)
        return f"{count} on {', '.join(tasks)}" if names else "A study of positional encodings"

    def to_json(self) -> dict[str, Any]:
        rest = asdict(self)
        return rest.pop("analysis") | rest


def summarise(contents: Contents, analysis: Analysis | None = None) -> Study:
    """Sum up a store; `analysis` where it is not that of all its tasks and encodings."""
    begun = time.time()
    analysis = analyse(contents) if analysis is None else analysis
    plan = plan_of(contents)
    shapes = {row.task: published(row.task) for row in analysis.rows}
    return Study(
        analysis,
        contents.plans[-1][1] if plan else "",
        contents.digest,
        contents.sources,
        _starts(contents),
        {task: curves for task, curves in shapes.items() if curves},
        since(begun),
    )


def _starts(contents: Contents) -> list[Start]:
    """The lines of the times that name a plan of this store."""
    if contents.path == Path():
        return []
    digests = {digest for digest, _ in contents.plans}
    return [
        Start(line.get("begun", ""), line.get("command", ""), line.get("commit"))
        for line in store.times(contents.path.parent)
        if line.get("plan") in digests
    ]
