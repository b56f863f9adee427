"""Exceptions of the command line, and context managers that turn other errors into them."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from posenc.support.extras import how_to_install

OURS = "posenc.lab.study"  # messages of this package's exceptions are written for users


class UsageError(Exception):
    """An error that the user can correct; the message gives the remedy."""


class Failure(Exception):
    """An error that the user's input did not cause, such as a full disk or a bug."""

    code = 1


class Unfinished(Failure):
    """A failure that exits with code 70, for commands whose exit code 1 means a result."""

    code = 70


@contextmanager
def user_code_errors(cards: Sequence[Any]) -> Iterator[None]:
    """Turn errors raised in the code of a user's own encoding into a UsageError of one line."""
    from posenc.properties import user_code

    try:
        yield
    except Exception as error:
        if (message := user_code.failure(error, cards)) is None:
            raise
        raise UsageError(message) from None


@contextmanager
def check_failures() -> Iterator[None]:
    """Convert errors other than UsageError to `Unfinished`, so that the exit code is not 1."""
    try:
        yield
    except UsageError:
        raise
    except Failure as error:
        raise Unfinished(str(error)) from None
    except BaseException as error:
        # Panics of Rust do not derive from `Exception`
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        raise Unfinished(
            f"the check failed with {type(error).__name__}: {error}. This does not"
            " mean that the model is wrong. Report this error with the output of"
            " `posenc doctor --json`."
        ) from error


@contextmanager
def model_errors() -> Iterator[None]:
    """Turn errors in a model's files into a UsageError, and failed reads into a Failure."""
    try:
        yield
    except (ValueError, FileExistsError) as error:
        raise UsageError(str(error)) from None
    except OSError as error:
        raise Failure(f"{error.filename or 'a file of the model'}: {error.strerror}.") from None


@contextmanager
def study_errors() -> Iterator[None]:
    """Turn errors in a study's plan, database or folder into a UsageError."""
    try:
        yield
    except ImportError as error:
        if error.name != "safetensors":
            raise
        raise UsageError(
            "this command needs the extra `study`, which is not installed:"
            f" {how_to_install('study')}"
        ) from None
    except ValueError as error:
        if type(error).__module__.startswith(OURS):
            raise UsageError(str(error)) from None
        raise
