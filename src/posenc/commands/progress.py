"""Progress of long commands: a bar on a terminal, otherwise a line every ten seconds."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Progress = Callable[[str, int, int], None]  # name of the current step, steps done, all steps


def quiet(doing: str, done: int, of: int) -> None:
    """Ignore the progress of a computation, and print nothing."""


@contextmanager
def progress(estimate: bool = True) -> Iterator[Progress]:
    """Yield a progress function that draws a bar on a terminal, or prints lines to a pipe.

    - `estimate`: estimate the remaining time; False if the names of steps contain it
    """
    if not sys.stderr.isatty():
        yield line_every(10.0, estimate)
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )
    from rich.progress import Progress as Bar

    columns = (
        TextColumn("{task.description:24}"),
        BarColumn(bar_width=16),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    if estimate:
        columns = (*columns, TextColumn("left"), TimeRemainingColumn())
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("reading", total=None)
        yield lambda doing, done, of: bar.update(task, description=doing, completed=done, total=of)


def line_every(seconds: float, estimate: bool = True) -> Progress:
    """Return a progress function that prints a line to stderr at most every `seconds` seconds."""
    begun = last = time.monotonic()

    def update(doing: str, done: int, of: int) -> None:
        nonlocal last
        if (now := time.monotonic()) - last >= seconds:
            last = now
            left = (now - begun) / done * (of - done) if done and estimate else None
            about = "" if left is None else f", about {_time_in_words(left)} left"
            count = f"{done} of {of}: " if of > 1 else ""
            print(f"{count}{doing}{about}", file=sys.stderr, flush=True)

    return update


def _time_in_words(seconds: float) -> str:
    """Format a waiting time: "40 s", "12 min"."""
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"
