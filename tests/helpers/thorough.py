"""Which cases a run takes of long sweeps."""

import os
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import TypeVar
from zlib import crc32

Case = TypeVar("Case")
THOROUGH = "POSENC_THOROUGH" in os.environ
QUICK = "POSENC_QUICK" in os.environ
MANY, EACH = 10, 5


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
