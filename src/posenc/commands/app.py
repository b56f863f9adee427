"""The Cyclopts app of the command line, and the decorator that adds a command to it.

    @command(LOOK, place=0, examples=(("posenc list", "all of them, by family"),))
    def list_(…) -> None: …

`cli` imports every file of this folder, so a new command needs no entry in any other file.
"""

import sys
from collections.abc import Callable
from typing import NamedTuple

from posenc.commands.imports import no_garbage_collection
from posenc.support.extras import how_to_install
from posenc.support.version import __version__

try:
    # Garbage collection during these imports takes a fifth of the time of `posenc list`
    with no_garbage_collection():
        from cyclopts import App, Group, Parameter
        from cyclopts.help import DefaultFormatter, PanelSpec
        from rich.box import Box
except ImportError:  # pragma: no cover
    sys.exit(f"error: the commands need the extra `cli`: {how_to_install('cli')}")

NO_BOX = Box("    \n" * 8)  # help without borders, for pipes
boxed = PanelSpec() if sys.stdout.isatty() else PanelSpec(box=NO_BOX, padding=(0, 0))

LOOK, MODELS, MEASURE, HERE = GROUPS = tuple(
    Group(title, sort_key=place)
    for place, title in enumerate(
        ("Look at encodings", "Read and extend models", "Measure", "This installation")
    )
)
Example = tuple[str, str]  # a command line, and a description or ""


class Command(NamedTuple):
    """The settings of a command: its place in the help, its examples, and a thread limit."""

    group: Group
    place: int  # order in its group
    examples: tuple[Example, ...]  # examples in its help, each of which is tested
    small: bool  # True if its tensors are small, so that one thread is fastest


COMMANDS: dict[str, Command] = {}
FIRST: tuple[Example, ...] = (  # the examples of `posenc --help`
    ("posenc show rope", "formula, measured properties and paper of an encoding"),
    ("posenc compare --out report/", "compare all encodings on a novel, with a page"),
    ("posenc inspect model/ --target 131072", "problems of a model at that length"),
)


def _as_markdown(examples: tuple[Example, ...]) -> str:
    """Format examples as Markdown, each below its description."""
    lines = [f"# {description}\n{line}" if description else line for line, description in examples]
    return "\n".join(["Examples:", "```sh", *lines, "```"])


app = App(
    help_formatter=DefaultFormatter(panel_spec=boxed),
    suppress_keyboard_interrupt=False,  # `main` handles it, and exits with 130
    name="posenc",
    help="Positional encodings for transformers: implemented, measured, compared and explained.",
    version=__version__,
    help_epilogue=_as_markdown(FIRST),
    default_parameter=Parameter(show_default=lambda value: value if value else None),
)


for _place, _flag in enumerate(("--help", "--version")):
    app[_flag].group, app[_flag].sort_key = (HERE,), 100 + _place


def command(
    group: Group,
    place: int,
    examples: tuple[Example, ...],
    arguments: str = "",
    small: bool = False,
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator that adds a function to the app as a command.

    The command has the name of the function, without final underscores.

    - `group`: group in the help
    - `place`: order in the group
    - `examples`: command lines with descriptions, which the help lists and tests run
    - `arguments`: replacement for "ARGS" in the usage line; empty: "ARGS"
    - `small`: True if its tensors are small, so that one thread is fastest
    """

    def added(function: Callable[..., None]) -> Callable[..., None]:
        name = function.__name__.rstrip("_")
        COMMANDS[name] = Command(group, place, examples, small)
        app.command(
            function,
            name=name,
            group=group,
            sort_key=place,
            help_epilogue=_as_markdown(examples),
            usage=f"Usage: posenc {name} [OPTIONS] {arguments}" if arguments else None,
        )
        return function

    return added
