"""Tests for encodings of your own, for pytest in your project.

from posenc.testing import conform

def test_mine_conforms():
    conform(Mine)
"""

from typing import Any

from posenc.properties.conformance import Conformance
from posenc.properties.conformance import conform as _conform


def conform(mine: Any, *sizes: int | None, **options: Any) -> Conformance:
    """Try every promise on `mine`, and assert that none is broken; `posenc.properties.conform`."""
    __tracebackhide__ = True
    conformance = _conform(mine, *sizes, **options)
    conformance.raise_if_failed()
    return conformance
