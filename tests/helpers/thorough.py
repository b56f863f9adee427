"""Select some cases of long sweeps for quick test runs, and all cases for thorough ones."""

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
    """Return every n-th case, where n is `every`, or all cases in a thorough run."""
    return [*cases] if THOROUGH else [*cases][::every]


def quick(tests: Mapping[Case, str]) -> list[Case]:
    """Return every fifth case of each test that has ten cases or more.

    The first case depends on the test's name, so that no card is left out by all tests.

    - `tests`: the name of the test of each case
    """
    cases: dict[str, list[Case]] = defaultdict(list)
    for case, test in tests.items():
        cases[test].append(case)
    kept: list[Case] = []
    for test, its in cases.items():
        kept += its if len(its) < MANY else its[crc32(test.encode()) % EACH :: EACH]
    return kept
