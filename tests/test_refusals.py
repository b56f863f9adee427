"""The helper that reads messages, on messages that hold the facts and on some that do not."""

import re

import pytest
from refusals import refused, stating


@pytest.mark.parametrize(
    "message",
    [
        "`heads` must be at least 3, got -1.",
        "got -1 for `heads`,\nwhich needs 3",
    ],
)
def test_facts_are_found_in_any_order(message: str):
    assert re.search(stating("`heads`", -1, 3), message)


@pytest.mark.parametrize(
    "message",
    [
        "`heads` must be at least 13, got -1.",
        "`heads` must be at least 3.5, got -1.",
        "`heads` must be at least 3,000, got -1.",
        "heads must be at least 3, got -1.",
        "`heads` must be at least 3, got 1.",
        "`heads` must be at least 3.",
    ],
)
def test_a_message_without_one_of_the_facts_fails(message: str):
    with pytest.raises(AssertionError), refused(ValueError, "`heads`", -1, 3):
        raise ValueError(message)


def test_another_exception_and_none_fail():
    with pytest.raises(KeyError), refused(ValueError, "`heads`"):
        raise KeyError("`heads`")
    with pytest.raises(pytest.fail.Exception), refused(ValueError, "`heads`"):
        pass
