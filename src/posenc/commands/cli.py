"""The commands of `posenc`, each thin, over plain functions: this begins the one that is asked for.

Exit codes: 0 done, 1 failed, 2 usage, 130 interrupted; of `check`, 1 is a fault, 3 "cannot say",
70 "did not finish"; of `show`, 1 is a promise that an encoding of your own breaks.
Data goes to stdout, progress and errors to stderr; bad input gets one line, and nothing is
overwritten. torch is imported inside the commands, so that `posenc --help` answers at once.
"""

# ruff: noqa: F401  each file adds its commands to the app as it is imported
import json
import os
import shlex
import sys
from collections.abc import Sequence
from typing import NoReturn

from cyclopts import CycloptsError, Group, UnknownCommandError, UnusedCliTokensError

from posenc.commands import (
    arena,
    bench,
    catalog,
    check,
    compare,
    doctor,
    examples,
    explore,
    help,
    models,
    results,
    study,
)
from posenc.commands.app import app, commands
from posenc.commands.errors import Failure, UsageError
from posenc.core.provenance import command_line
from posenc.core.text import printable
from posenc.core.waiting import wait_passively
from posenc.show.report.saving.interrupt import interruptible
from posenc.show.report.terminal import output

SMALL_WORK = "show", "compare", "report", "inspect", "convert", "explore"  # small tensors

NAMED = {  # what a command may be given, which its usage line would call ARGS
    "arena": "[ENCODING]",
    "bench": "[PARTS...]",
    "compare": "[NAMES...]",
    "explore": "[WHAT...]",
    "help": "[COMMAND...]",
    "inspect": "MODEL [OTHER]",
    "report": "[NAMES...]",
    "results": "[PATH]",
    "study": "[PLAN]",
}
# What a reader of `posenc --help` looks for, in the order of a first day
HERE = "This installation"
GROUPS = {
    "Look at encodings": ("list", "show", "explore", "cite"),
    "Read and extend models": ("inspect", "check", "extend", "convert"),
    "Measure": ("compare", "report", "study", "results", "arena", "bench"),
    HERE: ("doctor", "completion", "help"),
}
for place, (title, grouped) in enumerate(GROUPS.items()):
    group = Group(title, sort_key=place)
    flags = ("--help", "--version") if title == HERE else ()
    for order, name in enumerate([*grouped, *flags]):
        app[name].group, app[name].sort_key = (group,), order
for name in commands():
    app[name].help_epilogue = examples.examples(name)
    if name in NAMED:
        app[name].usage = f"Usage: posenc {name} [OPTIONS] {NAMED[name]}"


def main(words: Sequence[str] | None = None) -> None:
    """The entry point: turns what went wrong into a line on stderr and an exit code.

    Of a command with `--json` the line is a JSON document: {"error": …, "code": 2}.
    """
    words = sys.argv[1:] if words is None else words
    try:
        wait_passively()
        _take_threads(words)
        command_line.set(shlex.join(["posenc", *words]))
        with interruptible(), output.writable():
            app(words, result_action="return_value", print_error=False, exit_on_error=False)
    except UnknownCommandError as error:
        word = next((word for word in words if not word.startswith("-")), "")
        _say_wrong(examples.unknown(word, commands()) if word else error, 2, words)
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
    if words and words[0] in SMALL_WORK and not large:
        os.environ.setdefault("OMP_NUM_THREADS", "1")


def _say_wrong(what: object, code: int, asked: Sequence[str]) -> NoReturn:
    """Exit with a line on stderr that has no name without end and nothing a terminal obeys."""
    words = (word if len(word) < 300 else f"{word[:100]}…" for word in str(what).split())
    said = printable(" ".join(words), 2_000)
    as_json = json.dumps({"error": said, "code": code})
    print(as_json if "--json" in asked else f"error: {said}", file=sys.stderr)
    sys.exit(code)
