"""Make attention of any size share its tiles between two threads of Python."""

from contextlib import contextmanager

from posenc.attention.cpu import engine
from posenc.compat.threads import alone, threads


@contextmanager
def two_threads(monkeypatch):
    for smallest in ("FEWEST_SCORES", "WORTH_SHARING"):
        monkeypatch.setattr(engine, smallest, 0)
    with threads(2), alone():
        yield
