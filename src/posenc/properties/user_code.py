"""Encodings of one's own, by instance or by name: the one place where a user's code is run.

    my_module.py:Mine            a class, a function or an encoding in a file
    package.module:Mine          the same, in a module that Python can import

A file is run under its path as the module's name, which no `import` can ask for, so that it neither
hides a module nor is hidden by one; `sys.path` stays as it is.
"""

import ast
import sys
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from inspect import Parameter, cleandoc, getsource, signature
from pathlib import Path
from textwrap import dedent
from types import FunctionType, ModuleType
from typing import Any

from posenc.core.encoding import Encoding, leaves
from posenc.properties.card import Card
from posenc.properties.probe import copied
from posenc.support.arguments import brief
from posenc.support.names import is_own as is_own

# A formula of a docstring is a paragraph of its own, indented.
FORMULA = "\n\n    "
FILLED = {Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY}


@dataclass(frozen=True)
class Maker:
    """A maker of encodings from a class, a function, or an encoding, which is copied.

    The constructor gets those of `dim`, `heads` and `width` = dim · heads that it names; an
    encoding keeps the sizes that it has.
    """

    source: Any
    name: str  # name as the user wrote it

    def __call__(self, dim: int, heads: int, **options: Any) -> Encoding:
        if isinstance(self.source, Encoding):
            if options:
                raise TypeError(f"it is an encoding already, and takes no {', '.join(options)}.")
            return copied(self.source)
        sizes = {"dim": dim, "heads": heads, "width": dim * heads}
        asked = signature(self.source).parameters.values()
        needed = [
            parameter.name
            for parameter in asked
            if parameter.kind in FILLED and parameter.default is parameter.empty
        ]
        missing = [name for name in needed if name not in sizes and name not in options]
        if missing:
            raise TypeError(
                f"{self.name} asks for `{missing[0]}`, and only `dim`, `heads` and `width` are"
                " filled in: give it a default, or name a function that makes the encoding."
            )
        named = {
            parameter.name: sizes[parameter.name] for parameter in asked if parameter.name in sizes
        }
        encoding = self.source(**named | options)
        if not isinstance(encoding, Encoding):
            raise TypeError(f"{self.name} must make an `Encoding`, it made {brief(encoding)}.")
        if "dim" in named and len(named) == 1 and heads > 1:
            self._refuse_narrow(encoding, dim)
        return encoding

    def _refuse_narrow(self, encoding: Encoding, dim: int) -> None:
        """Refuse an encoding of embeddings that was made for the channels of one head."""
        if encoding.acts_on == ("on_embeddings",) and encoding.width in (0, dim):
            raise TypeError(
                f"{self.name} acts on embeddings, and its `dim` gets the {dim} channels of a head:"
                " name it `width` to get the channels of the embeddings."
            )


def card_of(source: Encoding) -> Card:
    """The card of an encoding as it stands: called by its class, with that class's docstring."""
    name = " + ".join(type(leaf).__name__ for leaf in leaves(source)) or type(source).__name__
    return Card(name, None, Maker(source, name), frozenset(), _docstring(type(source)))


def load(name: str) -> Card:
    """The card of what a file or a module holds under this name. Runs that file or module.

    Raises LookupError, in one sentence, where nothing of this name makes encodings.
    """
    source = named(name)
    if isinstance(source, Encoding):
        return card_of(source)
    is_class = isinstance(source, type) and issubclass(source, Encoding)
    if not is_class and not isinstance(source, FunctionType):
        raise LookupError(
            f"{name} must be a class derived from `posenc.Encoding`, a function that makes one, or"
            f" an encoding, got {brief(source)}. {_hint(_module(name), '')}"
        )
    return Card(name.rpartition(":")[2], None, Maker(source, name), frozenset(), _docstring(source))


def named(name: str) -> Any:
    """The object of this name, "my_module.py:Mine". Runs the file or module.

    Raises LookupError, in one sentence, where there is none.
    """
    place, _, inner = name.rpartition(":")
    module = _module(name)
    if not hasattr(module, inner):
        raise LookupError(f"{place} has no `{inner}`. {_hint(module, inner)}")
    return getattr(module, inner)


def _module(name: str) -> ModuleType:
    place = name.rpartition(":")[0]
    return _from_file(place) if place.endswith(".py") else _imported(place)


def _from_file(place: str) -> ModuleType:
    path = Path(place)
    if not path.is_file():
        raise LookupError(f"there is no file {place}: name one as `my_module.py:Mine`.")
    try:
        path = path.resolve()
        return _run(path, path.stat().st_mtime_ns)
    except OSError as error:
        raise LookupError(f"{place} cannot be read: {error.strerror}.") from error


@cache
def _run(path: Path, written: int) -> ModuleType:
    """Run a file once, until it is `written` to again."""
    spec = spec_from_file_location(str(path), path)
    assert spec is not None
    module, code = module_from_spec(spec), path.read_bytes()
    # dataclasses and pickle look for the module there
    sys.modules[spec.name] = module
    try:
        with explained(path.name, path):
            # Not by the loader, which would leave a __pycache__ beside the file.
            exec(compile(code, path, "exec"), vars(module))
    except BaseException:
        del sys.modules[spec.name]
        raise
    return module


def _imported(place: str) -> ModuleType:
    try:
        with explained(place):
            return import_module(place)
    except LookupError as error:
        missing = error.__cause__
        if isinstance(missing, ModuleNotFoundError) and f"{place}.".startswith(f"{missing.name}."):
            raise LookupError(
                f"no module is called {missing.name!r}: name one that Python can import, or a file"
                " as `my_module.py:Mine`."
            ) from error
        raise


@contextmanager
def explained(name: str, path: Path | None = None) -> Iterator[None]:
    """Raise what goes wrong while a file or module is run as a LookupError: what, and where."""
    try:
        yield
    except (Exception, SystemExit) as error:
        where = _line(error, None if path is None else {str(path)})
        what = error.msg if isinstance(error, SyntaxError) else error
        raise LookupError(f"{where or name}: {type(error).__name__}: {what}") from error


def failure(error: Exception, cards: Iterable[Card]) -> str | None:
    """Describe in one line what went wrong in a user's encoding; None where it did not."""
    sources = [card.make.source for card in cards if isinstance(card.make, Maker)]
    if not sources:
        return None
    classes = [type(source) if isinstance(source, Encoding) else source for source in sources]
    files = {str(getattr(sys.modules[kind.__module__], "__file__", None)) for kind in classes}
    if where := _line(error, files):
        return f"{where}: {type(error).__name__}: {error}"
    if error.__cause__ is not None and (where := _line(error.__cause__, files)):
        return f"{error} ({where})"
    return str(error) if isinstance(error, ValueError | TypeError) else None


def _line(error: BaseException, files: set[str] | None) -> str:
    """The last line of these files that an error passed through, "mine.py, line 3", or none."""
    if isinstance(error, SyntaxError):
        return f"{Path(str(error.filename)).name}, line {error.lineno}"
    frames = reversed(traceback.extract_tb(error.__traceback__))
    passed = (f for f in frames if (f.filename in files if files else f.filename[0] != "<"))
    return next((f"{Path(frame.filename).name}, line {frame.lineno}" for frame in passed), "")


def _encodings(module: ModuleType) -> list[str]:
    """The names of the classes of encodings that a module defines."""
    return [
        name
        for name, value in vars(module).items()
        if isinstance(value, type) and value.__module__ == module.__name__
        if issubclass(value, Encoding)
    ]


def _hint(module: ModuleType, inner: str) -> str:
    encodings = _encodings(module)
    near = get_close_matches(inner, encodings, cutoff=0.5)
    if near:
        return f"Did you mean {' or '.join(near)}?"
    return f"Its encodings: {', '.join(encodings)}." if encodings else "It has no encodings."


def _docstring(source: Any) -> str:
    """The docstring of a class or function, or of the module if the formula stands there."""
    module = sys.modules[source.__module__]
    text, around = _docstring_as_written(source), _docstring_as_written(module)
    alone = len(_encodings(module)) == 1 and FORMULA in around and FORMULA not in text
    return around if alone or not text else text


def _docstring_as_written(source: Any) -> str:
    """A docstring without the indentation of the code around it: what is left marks formulas."""
    if not source.__doc__:
        return ""
    try:
        tree: Any = ast.parse(dedent(getsource(source)))
    except (OSError, TypeError, SyntaxError):
        # The code was typed in, or made by other code
        return cleandoc(source.__doc__)
    node = tree if isinstance(source, ModuleType) else tree.body[0]
    first, *lines = (ast.get_docstring(node, clean=False) or source.__doc__).splitlines()
    margin = " " * node.body[0].col_offset
    return "\n".join([first, *(line.removeprefix(margin) for line in lines)]).strip()
