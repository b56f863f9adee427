"""The checker of types in tests: beartype, to which a whole number is a number, as PEP 484 says.

jaxtyping hands a checker two empty functions for each function it checks: one of the same
arguments, called before, and one that also takes what was returned, called after. The sizes that
the first has seen are kept for the second, so there the result alone is checked: most of a test's
time would else go into checking all arguments twice.
"""

import inspect
from typing import Any

from beartype import BeartypeConf, beartype

_checked = beartype(conf=BeartypeConf(is_pep484_tower=True))


def check(function):
    """Return the function with its arguments checked, or, of one called after, its result."""
    result = next(reversed(inspect.signature(function).parameters), "")
    if not result.startswith("ret") or "return" not in function.__annotations__:
        return _checked(function)

    def after(value: Any) -> function.__annotations__["return"]:
        return value

    after = _checked(after)
    return lambda *args, **kwargs: after(kwargs[result])
