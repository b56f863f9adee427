"""What goes wrong, as one sentence: what the user can mend, and what the machine failed at."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from posenc.support.extras import how_to_install

OURS = "posenc.lab.study"  # the wing whose ValueErrors of its own are sentences


class UsageError(Exception):
    """An error that the user can mend; the message says how."""


class Failure(Exception):
    """An error of the machine or the library, though nothing was wrong with what was asked."""

    code = 1


class Unfinished(Failure):
    """An error of a command whose exit code 1 is an answer. The code is EX_SOFTWARE of sysexits."""

    code = 70


@contextmanager
def own_code(cards: Sequence[Any]) -> Iterator[None]:
    """Say in one line what goes wrong in an encoding of the user's own."""
    from posenc.properties import user_code

    try:
        yield
    except Exception as error:
        if (message := user_code.failure(error, cards)) is None:
            raise
        raise UsageError(message) from None


@contextmanager
def finished() -> Iterator[None]:
    """Turn any failure but a usage error into one sentence, and an exit code of its own.

    Panics of Rust do not derive from `Exception`.
    """
    try:
        yield
    except UsageError:
        raise
    except Failure as error:
        raise Unfinished(str(error)) from None
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        raise Unfinished(
            f"the check failed with {type(error).__name__}: {error}. This says nothing about the"
            " model. Report it with the output of `posenc doctor --json`."
        ) from error


@contextmanager
def of_models() -> Iterator[None]:
    """Turn errors in a model's files into a sentence for the user to mend."""
    try:
        yield
    except (ValueError, FileExistsError) as error:
        raise UsageError(str(error)) from None
    except OSError as error:
        raise Failure(f"{error.filename or 'a file of the model'}: {error.strerror}.") from None


@contextmanager
def of_studies() -> Iterator[None]:
    """Turn errors in a plan, a store or a folder into a sentence for the user to mend."""
    try:
        yield
    except ImportError as error:
        if error.name != "safetensors":
            raise
        raise UsageError(f"this needs the extra `study`: {how_to_install('study')}") from None
    except ValueError as error:
        if type(error).__module__.startswith(OURS):  # a sentence
            raise UsageError(str(error)) from None
        raise
