"""The summary of a study for reports: analysis, registered plan, start times and environment."""

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
    """One start or continuation of a study: its time, command and commit."""

    when: str
    command: str  # the command as typed; empty from Python
    commit: str | None


@dataclass(frozen=True)
class Study:
    """A study's analysis, plan, sources and starts, as shown on its report page."""

    analysis: Analysis
    plan: str  # plan in TOML; empty without one
    outcomes: str  # digest of the store's contents; equal if a study is repeated with equal results
    sources: Mapping[str, str]  # versions, and digests of the user's own files
    starts: Sequence[Start]
    published: Mapping[str, PublishedCurves]  # published curves by task
    provenance: Provenance  # provenance of this summary

    @property
    def title(self) -> str:
        """The title of the report: the encodings and the tasks, without the plan's hypothesis."""
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
    """Summarise a study's stored results for its report page.

    - `contents`: contents of the store
    - `analysis`: analysis of some of its tasks and encodings; None: of all
    """
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
    """Return the study's starts and continuations, as recorded in times.jsonl."""
    if contents.path == Path():
        return []
    digests = {digest for digest, _ in contents.plans}
    return [
        Start(line.get("begun", ""), line.get("command", ""), line.get("commit"))
        for line in store.times(contents.path.parent)
        if line.get("plan") in digests
    ]
