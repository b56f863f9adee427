"""A pytest helper that tests an encoding of your own.

from posenc.testing import conform

def test_mine_conforms():
    conform(Mine)
"""

from typing import Any

from posenc.properties.conformance import Conformance
from posenc.properties.conformance import conform as _conform

__all__ = ["conform"]


def conform(mine: Any, *sizes: int | None, **options: Any) -> Conformance:
    """Test that an encoding of your own meets every requirement in `posenc.properties.promises`.

    - `mine`: a class, a function that makes an encoding, an instance, "my.py:Mine", or a card
    - `sizes`: `dim`, `heads` and `width`, in this order; missing ones are chosen as in
      `posenc.properties.conform`
    - `options`: the other arguments of `posenc.properties.conform`, `holds` for instance

    Returns all outcomes. Raises AssertionError that lists each broken promise and its remedy.

    >>> from posenc import ALiBi
    >>> conform(ALiBi(4)).failed
    []
    """
    __tracebackhide__ = True
    conformance = _conform(mine, *sizes, **options)
    conformance.raise_if_failed()
    return conformance
