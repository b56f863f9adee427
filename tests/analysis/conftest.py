import pytest

from posenc.analysis.text import parse


@pytest.fixture
def text():
    """Eight short paragraphs of few words."""
    once = "the dog bites the man .\n\nthe man bites the old dog , the man said .\n\n"
    return parse("a test", once * 4)
