"""Code with its words in colours of the page's style sheet."""

from markupsafe import Markup, escape
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import get_lexer_by_name, get_lexer_for_filename
from pygments.util import ClassNotFound


def coloured(code: str, language: str) -> Markup:
    """The code as HTML, without an element around it; as it is where the language is not known."""
    try:
        lexer = get_lexer_by_name(language)
    except ClassNotFound:
        return escape(code)
    return Markup(highlight(code, lexer, HtmlFormatter(nowrap=True)))


def language(path: str) -> str:
    """The language of a file by its name."""
    try:
        return get_lexer_for_filename(path).aliases[0]
    except ClassNotFound:
        return "text"
