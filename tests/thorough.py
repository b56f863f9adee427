"""Which tests a run takes, of long sweeps of like cases, and their order among its workers."""

import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Protocol, TypeVar
from zlib import crc32


class Collected(Protocol):
    """What is asked of a test that pytest has collected."""

    nodeid: str
    path: Path


Case = TypeVar("Case")
Test = TypeVar("Test", bound=Collected)
THOROUGH = "POSENC_THOROUGH" in os.environ
QUICK = "POSENC_QUICK" in os.environ
MANY, EACH = 20, 5
FIRST = "test_compiled.py"  # its few tests take longest


def some(cases: Iterable[Case], every: int) -> list[Case]:
    """The first of every so many cases; all where the run is thorough."""
    return [*cases] if THOROUGH else [*cases][::every]


def quick(tests: Mapping[Case, str]) -> list[Case]:
    """Of a test with many cases each fifth, begun at another in each test: no card is in none.

    `tests` says for each case which test it is of.
    """
    cases: dict[str, list[Case]] = defaultdict(list)
    for case, test in tests.items():
        cases[test].append(case)
    kept: list[Case] = []
    for test, its in cases.items():
        kept += its if len(its) < MANY else its[crc32(test.encode()) % EACH :: EACH]
    return kept


def slow_first(tests: Iterable[Test], is_slow: Callable[[Test], bool], workers: int) -> list[Test]:
    """The order in which each of so many workers begins with slow tests, and ends with short ones.

    xdist gives each worker as many tests, in their order; who is done first takes over half of what
    another has left, from its end. Rooms are dealt out in turn, whole, so that one worker makes
    what slow tests share; but each test of FIRST is dealt out by itself, before all.
    """
    rooms: dict[str, list[Test]] = defaultdict(list)
    short: list[Test] = []
    for test in tests:
        if is_slow(test):
            rooms[test.nodeid if test.path.name == FIRST else str(test.path.parent)].append(test)
        else:
            short.append(test)
    dealt = sorted(rooms.values(), key=lambda its: its[0].path.name != FIRST)
    share = (sum(map(len, dealt)) + len(short)) // workers
    ordered: list[Test] = []
    for worker in range(workers):
        own = [test for its in dealt[worker::workers] for test in its]
        room = max(0, share - len(own)) if worker < workers - 1 else len(short)
        ordered += own + short[:room]
        short = short[room:]
    return ordered
