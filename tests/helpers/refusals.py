"""Check error messages for facts, such as an argument's name, because their wording may change."""

import re

import pytest


def refused(error: type[Exception] | tuple[type[Exception], ...], *facts: object):
    """Expect an error whose message has all these facts, in any order.

    - `facts`: an argument in back-quotes, a value, a command; each is found as a whole word, so
      that 3 is not found in 13 or 3.5
    """
    return pytest.raises(error, match=stating(*facts))


def stating(*facts: object) -> str:
    """Return a regular expression that matches messages with all these facts, in any order."""
    return "(?s)" + "".join(f"(?=.*{whole(str(fact))})" for fact in facts)


def whole(fact: str) -> str:
    before = r"(?<![\w.])" if re.match(r"-?\d", fact) else r"(?<!\w)" if fact[:1].isalnum() else ""
    after = r"(?!\w|[.,]\d)" if re.search(r"\w$", fact) else ""
    return before + re.escape(fact) + after
