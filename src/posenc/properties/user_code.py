"""Load encodings from Python code of the user. Such code is executed in this module only.

    my_module.py:Mine            a class, a function or an encoding in a file
    package.module:Mine          the same, in a module that Python can import

The name of the module of a file is its path, which no `import` statement can contain, so that it
cannot conflict with other modules; `sys.path` is not changed.
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

# The formula of a docstring is an indented paragraph
FORMULA = "\n\n    "
FILLED = {Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY}


@dataclass(frozen=True)
class Maker:
    """A function that returns a user's encoding: a new one, or a copy of an existing one.

    `dim`, `heads` and `width` = dim · heads are passed to a class or function if it has arguments
    of these names. A copied encoding keeps its sizes.
    """

    source: Any
    name: str  # name as the user wrote it

    def __call__(self, dim: int, heads: int, **options: Any) -> Encoding:
        if isinstance(self.source, Encoding):
            if options:
                raise TypeError(
                    f"`options` must be empty for an encoding object, got {', '.join(options)}."
                    " Pass the class of the encoding instead."
                )
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
                f"the arguments of {self.name} must be `dim`, `heads` or `width`, or have defaults,"
                f" got `{missing[0]}`. Add a default, or name a function that returns the encoding."
            )
        named = {
            parameter.name: sizes[parameter.name] for parameter in asked if parameter.name in sizes
        }
        encoding = self.source(**named | options)
        if not isinstance(encoding, Encoding):
            raise TypeError(f"{self.name} must return an `Encoding`, got {brief(encoding)}.")
        if "dim" in named and len(named) == 1 and heads > 1:
            self._refuse_narrow(encoding, dim)
        return encoding

    def _refuse_narrow(self, encoding: Encoding, dim: int) -> None:
        """Raise TypeError for an encoding that acts on embeddings but has the width of a head."""
        if encoding.acts_on == ("on_embeddings",) and encoding.width in (0, dim):
            raise TypeError(
                f"{self.name} acts on embeddings, but its `dim` is the {dim} channels of a head."
                " Name the argument `width` to receive the channels of embeddings."
            )


def card_of(source: Encoding) -> Card:
    """Return a card for an encoding, with the name and docstring of its class."""
    name = " + ".join(type(leaf).__name__ for leaf in leaves(source)) or type(source).__name__
    return Card(name, None, Maker(source, name), frozenset(), _docstring(type(source)))


def load(name: str) -> Card:
    """Execute a file or module, and return a card for the encoding of this name.

    Raises LookupError if the name is not a class, function or instance for encodings.
    """
    source = named(name)
    if isinstance(source, Encoding):
        return card_of(source)
    is_class = isinstance(source, type) and issubclass(source, Encoding)
    if not is_class and not isinstance(source, FunctionType):
        raise LookupError(
            f"{name} must be a class derived from `posenc.Encoding`, a function that returns an"
            f" encoding, or an encoding, got {brief(source)}. {_hint(_module(name), '')}"
        )
    return Card(name.rpartition(":")[2], None, Maker(source, name), frozenset(), _docstring(source))


def named(name: str) -> Any:
    """Return the object that a name such as "my_module.py:Mine" refers to.

    The file or module is executed.

    Raises LookupError if there is no such object.
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
        raise LookupError(
            f"there is no file {place}. Name an existing file and a class, as in"
            " `my_module.py:Mine`."
        )
    try:
        path = path.resolve()
        return _run(path, path.stat().st_mtime_ns)
    except OSError as error:
        raise LookupError(f"{place} cannot be read: {error.strerror}.") from error


@cache
def _run(path: Path, written: int) -> ModuleType:
    """Execute a Python file, and return its module.

    The module is cached until the modification time of the file, `written`, changes.
    """
    spec = spec_from_file_location(str(path), path)
    assert spec is not None
    module, code = module_from_spec(spec), path.read_bytes()
    # dataclasses and pickle find the module in sys.modules
    sys.modules[spec.name] = module
    try:
        with explained(path.name, path):
            # The module loader would create a __pycache__ next to the file
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
                f"there is no module {missing.name!r}. Name a module that Python can import, or a"
                " file and a class, as in `my_module.py:Mine`."
            ) from error
        raise


@contextmanager
def explained(name: str, path: Path | None = None) -> Iterator[None]:
    """Convert errors of user code to LookupError with the error's type, text and line."""
    try:
        yield
    except (Exception, SystemExit) as error:
        where = _line(error, None if path is None else {str(path)})
        what = error.msg if isinstance(error, SyntaxError) else error
        raise LookupError(f"{where or name}: {type(error).__name__}: {what}") from error


def failure(error: Exception, cards: Iterable[Card]) -> str | None:
    """Describe an error in a user's encoding in one line; None if the error is in other code."""
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
    """Return the innermost traceback line in user code, such as "mine.py, line 3", or "".

    `files` has the files of user code; None allows all files.
    """
    if isinstance(error, SyntaxError):
        return f"{Path(str(error.filename)).name}, line {error.lineno}"
    frames = reversed(traceback.extract_tb(error.__traceback__))
    passed = (f for f in frames if (f.filename in files if files else f.filename[0] != "<"))
    return next((f"{Path(frame.filename).name}, line {frame.lineno}" for frame in passed), "")


def _encodings(module: ModuleType) -> list[str]:
    """Return the names of the encoding classes that a module defines."""
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
    """Return the docstring of a class or function, or that of its module.

    The docstring of the module is returned if the object has none, or if the module defines one
    encoding and only the module's docstring has a formula.
    """
    module = sys.modules[source.__module__]
    text, around = _docstring_as_written(source), _docstring_as_written(module)
    alone = len(_encodings(module)) == 1 and FORMULA in around and FORMULA not in text
    return around if alone or not text else text


def _docstring_as_written(source: Any) -> str:
    """Return a docstring without the indentation of its code; indented formulas stay indented."""
    if not source.__doc__:
        return ""
    try:
        tree: Any = ast.parse(dedent(getsource(source)))
    except (OSError, TypeError, SyntaxError):
        # The source is not available for code that was typed in or generated
        return cleandoc(source.__doc__)
    node = tree if isinstance(source, ModuleType) else tree.body[0]
    first, *lines = (ast.get_docstring(node, clean=False) or source.__doc__).splitlines()
    margin = " " * node.body[0].col_offset
    return "\n".join([first, *(line.removeprefix(margin) for line in lines)]).strip()
