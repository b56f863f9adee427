"""Write and read figures as JSON, in the format of the explorer's *JSON* button.

    {"schema": "posenc.figure/1", "title": …, "columns": …, "panels": [
        {"title": …, "x_title": …, "marks": [{"mark": "heat", "z": …, "x": …, "y": …}, …]}, …]}

Keys are the fields of the classes in `figure.py`. A missing key has its default; a line without a
colour has the colour of its place.
"""

from collections.abc import Mapping
from dataclasses import MISSING, fields
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from posenc.show.report.drawing import marks
from posenc.show.report.drawing.figure import Figure, Mark, Panel, style
from posenc.support.arguments import brief

SCHEMA = "posenc.figure/1"
MARKS = {kind.__name__.lower(): kind for kind in marks.KINDS}
WORDS = {
    float: ("a number", "numbers"),
    int: ("a whole number", "whole numbers"),
    str: ("text", "texts"),
    bool: ("true or false", "true or false"),
    NoneType: ("null", "null"),
}
BESIDE = ("schema", "address", "provenance", "listed")  # keys beside those of a figure


def to_json(figure: Figure) -> dict[str, Any]:
    """Return the figure as plain numbers and text, without fields that have their default value."""
    panels = [
        _written(panel)
        | {"marks": [{"mark": type(m).__name__.lower()} | _written(m) for m in panel.marks]}
        for panel in figure.panels
    ]
    return {"schema": SCHEMA} | _written(figure) | {"panels": panels}


def from_json(document: Any) -> Figure:
    """Read a figure from the document that `to_json` returns.

    Raises ValueError for other documents, and for keys that are missing, unknown or of a wrong
    type.
    """
    if not isinstance(document, Mapping) or document.get("schema") != SCHEMA:
        got = document.get("schema") if isinstance(document, Mapping) else document
        raise ValueError(
            f'`schema` must be "{SCHEMA}", got {brief(got)}. Save the figure with *JSON* in the'
            " explorer, or with `Picture.save`."
        )
    content = {key: value for key, value in document.items() if key not in BESIDE}
    panels = [_panel(panel) for panel in _listed(content.get("panels"), "panels")]
    read: dict[str, Any] = _checked_fields(Figure, content, "the figure") | {"panels": panels}
    return Figure(**read)


def _written(part: Any) -> dict[str, Any]:
    values = {field: getattr(part, field.name) for field in fields(part)}
    return {
        field.name: _plain(value)
        for field, value in values.items()
        if field.name != "listed" and (field.name == "colour" or value != field.default)
    }


def _plain(value: Any) -> Any:
    return [_plain(item) for item in value] if isinstance(value, (list, tuple, range)) else value


def _panel(content: Any) -> Panel:
    read = _checked_fields(Panel, content, "a panel")
    styles: dict[str, dict[str, Any]] = {}
    marks = [_mark(mark, styles) for mark in _listed(content.get("marks"), "marks")]
    read |= {"title": read.get("title", ""), "marks": marks}
    return Panel(**read)


def _mark(content: Any, styles: dict[str, dict[str, Any]]) -> Mark:
    name = content.get("mark") if isinstance(content, Mapping) else None
    if name not in MARKS:
        raise ValueError(
            f"`mark` must be one of {', '.join(MARKS)}, got {brief(name)}. Use one of these."
        )
    kind = MARKS[name]
    read = _checked_fields(kind, {k: v for k, v in content.items() if k != "mark"}, f"a {name}")
    if kind.styled and "colour" not in read:
        look = styles.setdefault(read.get("name", ""), dict(style(len(styles))))
        own = {field.name for field in fields(kind)} - {"marker"}
        read = {key: value for key, value in look.items() if key in own} | read
    mark = kind(**read)
    if not mark.even:
        raise ValueError(
            f"the lists of a {name} must have equal lengths, got different lengths. Pass the"
            " same number of values in each."
        )
    return mark


def _checked_fields(kind: type, content: Any, what: str) -> dict[str, Any]:
    """Return the fields of a class from a document, after a check of names and types."""
    if not isinstance(content, Mapping):
        raise ValueError(f"{what} must be an object, got {brief(content)}.")
    hints = get_type_hints(kind)
    for key, value in content.items():
        if key not in hints:
            raise ValueError(
                f"keys of {what} must be among {', '.join(hints)}, got `{key}`. Remove this key."
            )
        if key not in ("marks", "panels") and not _fits(value, hints[key]):
            raise ValueError(
                f"`{key}` must be {_type_in_words(hints[key])} in {what}, got {brief(value)}."
            )
    for field in fields(kind):
        if field.default is MISSING and field.name not in (*content, "title", "marks", "panels"):
            raise ValueError(f"{what} must have the key `{field.name}`, got none. Add this key.")
    return dict(content)


def _fits(value: Any, hint: Any) -> bool:
    """Test whether a JSON value has a type that an annotation in `figure.py` allows."""
    kinds = get_args(hint)
    match get_origin(hint):
        case None if hint is float:
            return isinstance(value, (int, float)) and not isinstance(value, bool)
        case None:
            return isinstance(value, hint) and (hint is bool or not isinstance(value, bool))
        case origin if origin is Literal:
            return value in kinds
        case origin if origin in (Union, UnionType):
            return any(_fits(value, kind) for kind in kinds)
        case _:
            # The hint is a sequence
            return isinstance(value, list) and all(_fits(item, kinds[0]) for item in value)


def _type_in_words(hint: Any, word: int = 0) -> str:
    """Describe the type of a value in words.

    `word` selects the form: 0 for one value, 1 for the values of a list.
    """
    kinds = get_args(hint)
    match get_origin(hint):
        case None:
            return WORDS[hint][word]
        case origin if origin is Literal:
            return f"one of {', '.join(map(repr, kinds))}"
        case origin if origin in (Union, UnionType):
            return " or ".join(_type_in_words(kind, word) for kind in kinds)
        case _:
            return f"a list of {_type_in_words(kinds[0], 1)}"


def _listed(value: Any, name: str) -> list[Any]:
    if not isinstance(value, list) or not value:
        got = "an empty list" if value == [] else brief(value)
        raise ValueError(f"`{name}` must be a list with at least one element, got {got}.")
    return value
