"""The app, and the decorator by which each file adds its commands.

    @command(LOOK, place=0, examples=(("posenc list", "all of them, by family"),))
    def list_(…) -> None: …

`cli` imports every file of this folder, so a command is listed nowhere else.
"""

import gc
import sys
from collections.abc import Callable
from typing import NamedTuple

from posenc.support.extras import how_to_install
from posenc.support.version import __version__

collects = gc.isenabled()
try:
    # Collecting garbage during imports costs a fifth of `posenc list`
    gc.disable()
    from cyclopts import App, Group, Parameter
    from cyclopts.help import DefaultFormatter, PanelSpec
    from rich.box import Box
except ImportError:  # pragma: no cover
    sys.exit(f"error: the commands need the extra `cli`: {how_to_install('cli')}")
finally:
    if collects:
        gc.enable()

NO_BOX = Box("    \n" * 8)  # pipes get help without bars, which `grep` would find
boxed = PanelSpec() if sys.stdout.isatty() else PanelSpec(box=NO_BOX, padding=(0, 0))

LOOK, MODELS, MEASURE, HERE = GROUPS = tuple(
    Group(title, sort_key=place)
    for place, title in enumerate(
        ("Look at encodings", "Read and extend models", "Measure", "This installation")
    )
)
Example = tuple[str, str]  # a line, and what it does or ""


class Command(NamedTuple):
    """What a command declares beside its function."""

    group: Group
    place: int  # in its group
    examples: tuple[Example, ...]  # tests run each of them
    small: bool  # its tensors are small: one thread


COMMANDS: dict[str, Command] = {}
FIRST: tuple[Example, ...] = (  # the examples of `posenc --help`
    ("posenc show rope", "what it is: formula, measured properties, paper"),
    ("posenc compare --out report/", "all of them on a novel, with a page to look at"),
    ("posenc inspect model/ --target 131072", "what breaks in a model at that length"),
)


def _shown(examples: tuple[Example, ...]) -> str:
    """Write examples in Markdown, each with what it does above it."""
    lines = [f"# {does}\n{line}" if does else line for line, does in examples]
    return "\n".join(["Examples:", "```sh", *lines, "```"])


app = App(
    help_formatter=DefaultFormatter(panel_spec=boxed),
    suppress_keyboard_interrupt=False,  # `main` says so itself, and exits with 130
    name="posenc",
    help="Positional encodings: every one, plugged into real attention, and measured.",
    version=__version__,
    help_epilogue=_shown(FIRST),
    default_parameter=Parameter(show_default=lambda value: value if value else None),
)


for _place, _flag in enumerate(("--help", "--version")):
    app[_flag].group, app[_flag].sort_key = (HERE,), 100 + _place


def command(
    group: Group, place: int, examples: tuple[Example, ...], takes: str = "", small: bool = False
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Add a function to the app, by its name without a trailing underscore.

    `takes` replaces the word ARGS of its usage line.
    """

    def added(function: Callable[..., None]) -> Callable[..., None]:
        name = function.__name__.rstrip("_")
        COMMANDS[name] = Command(group, place, examples, small)
        app.command(
            function,
            name=name,
            group=group,
            sort_key=place,
            help_epilogue=_shown(examples),
            usage=f"Usage: posenc {name} [OPTIONS] {takes}" if takes else None,
        )
        return function

    return added
