"""`posenc help` and `posenc completion`."""

from typing import Literal

from posenc.commands import examples
from posenc.commands.app import app, commands
from posenc.commands.errors import UsageError


@app.command(name="help")
def help_(*command: str) -> None:
    """Show the help of a command, or of all.

    Parameters
    ----------
    command
        Its name.
    """
    if command and command[0] not in commands():
        raise UsageError(examples.unknown(command[0], commands()))
    app.help_print([*command])


@app.command
def completion(shell: Literal["bash", "zsh", "fish"], /) -> None:
    """Print a script that lets a shell complete commands and options.

    Parameters
    ----------
    shell
        bash, zsh or fish.
    """
    print(app.generate_completion(prog_name="posenc", shell=shell))
