"""Entry point of the command line: it imports every file of commands, and runs the one asked for.

Exit codes: 0 done, 1 failed, 2 usage, 130 interrupted; of `check`, 1 is a fault, 3 "cannot say",
70 "did not finish"; of `show`, 1 is a promise that an encoding of your own breaks.
Data goes to stdout, progress and errors to stderr; bad input gets one line, and nothing is
overwritten. torch is imported inside the commands, so that `posenc --help` answers at once.
"""

import json
import os
import shlex
import sys
from collections.abc import Sequence
from importlib import import_module
from pkgutil import iter_modules
from typing import NoReturn

from cyclopts import App, CycloptsError, UnknownCommandError, UnusedCliTokensError

import posenc.commands
from posenc.commands.app import COMMANDS, app
from posenc.commands.errors import Failure, UsageError
from posenc.commands.help import unknown
from posenc.compat.wait_policy import wait_passively
from posenc.show.report.saving.interrupt import interruptible
from posenc.show.report.terminal import output
from posenc.support.provenance import command_line
from posenc.support.text import printable

for _found in iter_modules(posenc.commands.__path__):
    import_module(f"posenc.commands.{_found.name}")


def main(words: Sequence[str] | None = None, program: App = app) -> None:
    """The entry point: turns what went wrong into a line on stderr and an exit code.

    Of a command with `--json` the line is a JSON document: {"error": …, "code": 2}.
    """
    words = sys.argv[1:] if words is None else words
    try:
        wait_passively()
        _take_threads(words)
        command_line.set(f"{program.name[0]} {shlex.join(words)}".rstrip())
        with interruptible(), output.writable():
            program(words, result_action="return_value", print_error=False, exit_on_error=False)
    except UnknownCommandError as error:
        word = next((word for word in words if not word.startswith("-")), "")
        _say_wrong(unknown(word) if word else error, 2, words)
    except UnusedCliTokensError as error:
        few = " ".join(error.unused_tokens or ())
        _say_wrong(
            f"{few}: the command takes no more names, see `posenc {words[0]} --help`.", 2, words
        )
    except (UsageError, CycloptsError) as error:
        _say_wrong(error, 2, words)
    except Failure as error:
        _say_wrong(error, error.code, words)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(130)
    except BrokenPipeError:
        # The reader of a pipe has ended, as in `posenc list | head`
        output.abandon()
        sys.exit(1)
    except OSError as error:
        if error.filename is None:
            output.abandon()
        place = error.filename or "standard output"
        _say_wrong(f"{place} cannot be written to: {error.strerror}.", 1, words)


def _take_threads(words: Sequence[str]) -> None:
    """Take one thread where the work is small, before torch is imported and takes one a core.

    Several would wait for each other: `convert`, beside two busy processes on as many cores, took
    51 s of processor time with two threads, where one takes 3. A number that the user sets stays.
    """
    # With --model a text is read, which is worth several threads
    large = any(word.startswith("--model") for word in words)
    if words and words[0] in COMMANDS and COMMANDS[words[0]].small and not large:
        os.environ.setdefault("OMP_NUM_THREADS", "1")


def _say_wrong(what: object, code: int, asked: Sequence[str]) -> NoReturn:
    """Exit with a line on stderr that has no name without end and nothing a terminal obeys."""
    words = (word if len(word) < 300 else f"{word[:100]}…" for word in str(what).split())
    said = printable(" ".join(words), 2_000)
    as_json = json.dumps({"error": said, "code": code})
    print(as_json if "--json" in asked else f"error: {said}", file=sys.stderr)
    sys.exit(code)
