"""The app that each file of commands adds its own to."""

import gc
import sys

from posenc.commands.examples import examples
from posenc.core.extras import how_to_install
from posenc.core.version import __version__

collects = gc.isenabled()
try:
    # Collecting garbage during imports costs a fifth of `posenc list`
    gc.disable()
    from cyclopts import App, Parameter
    from cyclopts.help import DefaultFormatter, PanelSpec
    from rich.box import Box
except ImportError:  # pragma: no cover
    sys.exit(f"error: the commands need the extra `cli`: {how_to_install('cli')}")
finally:
    if collects:
        gc.enable()

NO_BOX = Box("    \n" * 8)  # pipes get help without bars, which `grep` would find
boxed = PanelSpec() if sys.stdout.isatty() else PanelSpec(box=NO_BOX, padding=(0, 0))

app = App(
    help_formatter=DefaultFormatter(panel_spec=boxed),
    suppress_keyboard_interrupt=False,  # `main` says so itself, and exits with 130
    name="posenc",
    help="Positional encodings: every one, plugged into real attention, and measured.",
    version=__version__,
    help_epilogue=examples(""),
    default_parameter=Parameter(show_default=lambda value: value if value else None),
)


def commands() -> list[str]:
    """The names of all commands."""
    return [name for name in app if not name.startswith("-")]
