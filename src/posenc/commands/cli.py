"""The entry point of the command line: imports all commands and runs one.

Exit codes are 0 done, 1 failed, 2 usage, 130 interrupted. For `check`, 1 is a fault, 3 is an
unknown result and 70 is an error of the check; for `show`, 1 is a failed requirement of an encoding
of your own. Data goes to stdout, progress and errors to stderr. Bad input is reported in one line,
and nothing is overwritten. Commands import torch when they run, so that `posenc --help` is fast.
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
from posenc.show.report.interrupt import interruptible
from posenc.show.report.terminal import output
from posenc.support.provenance import command_line
from posenc.support.text import printable

for _found in iter_modules(posenc.commands.__path__):
    import_module(f"posenc.commands.{_found.name}")


def main(words: Sequence[str] | None = None, program: App = app) -> None:
    """Run a command; print an error as one line on stderr, and exit with its code.

    With `--json` the line is a JSON document: {"error": …, "code": 2}.
    """
    words = sys.argv[1:] if words is None else words
    try:
        wait_passively()
        _limit_threads(words)
        command_line.set(f"{program.name[0]} {shlex.join(words)}".rstrip())
        with interruptible(), output.writable():
            program(words, result_action="return_value", print_error=False, exit_on_error=False)
    except UnknownCommandError as error:
        word = next((word for word in words if not word.startswith("-")), "")
        _exit_with_error(unknown(word) if word else error, 2, words)
    except UnusedCliTokensError as error:
        few = " ".join(error.unused_tokens or ())
        _exit_with_error(f"{few}: too many arguments. See `posenc {words[0]} --help`.", 2, words)
    except (UsageError, CycloptsError) as error:
        _exit_with_error(error, 2, words)
    except Failure as error:
        _exit_with_error(error, error.code, words)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(130)
    except BrokenPipeError:
        # The reading process has ended, as in `posenc list | head`
        output.abandon()
        sys.exit(1)
    except OSError as error:
        if error.filename is None:
            output.abandon()
        place = error.filename or "standard output"
        _exit_with_error(f"{place} cannot be written to: {error.strerror}.", 1, words)


def _limit_threads(words: Sequence[str]) -> None:
    """Limit torch to one thread if the command computes with small tensors only.

    Call this function before torch is imported.

    Several threads would wait for each other: next to two busy processes on two cores, `convert`
    needed 51 s of processor time with two threads and 3 s with one. A number of threads that the
    user has set is kept.
    """
    # With --model a model reads a text, for which several threads are faster
    large = any(word.startswith("--model") for word in words)
    if words and words[0] in COMMANDS and COMMANDS[words[0]].small and not large:
        os.environ.setdefault("OMP_NUM_THREADS", "1")


def _exit_with_error(error: object, code: int, arguments: Sequence[str]) -> NoReturn:
    """Print an error as one line on stderr, and exit.

    Long words are shortened, and control characters are escaped.
    """
    words = (word if len(word) < 300 else f"{word[:100]}…" for word in str(error).split())
    message = printable(" ".join(words), 2_000)
    as_json = json.dumps({"error": message, "code": code})
    print(as_json if "--json" in arguments else f"error: {message}", file=sys.stderr)
    sys.exit(code)
