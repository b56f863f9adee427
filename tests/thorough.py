"""Long sweeps of like cases: a run takes each so many-th of them, `make thorough` takes all."""

import os
from collections.abc import Iterable
from typing import TypeVar

Case = TypeVar("Case")
THOROUGH = "POSENC_THOROUGH" in os.environ


def some(cases: Iterable[Case], every: int) -> list[Case]:
    """The first of every so many cases; all where the run is thorough."""
    return [*cases] if THOROUGH else [*cases][::every]
