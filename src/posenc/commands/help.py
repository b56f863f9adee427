"""`posenc help` and `posenc completion`: help texts and completion scripts."""

from typing import Annotated, Literal

from cyclopts import Parameter

from posenc.commands.app import COMMANDS, HERE, app, command
from posenc.commands.errors import UsageError
from posenc.support import names


@command(
    HERE,
    place=2,
    arguments="[COMMAND...]",
    examples=(("posenc help compare", "the same as `posenc compare --help`"),),
)
def help_(*words: Annotated[str, Parameter(name="COMMAND")]) -> None:
    """Show the help of a command, or the list of commands.

    Parameters
    ----------
    words
        The name of a command; without a name, the command lists all commands.
    """
    if words and words[0] not in COMMANDS:
        raise UsageError(unknown(words[0]))
    app.help_print([*words])


@command(
    HERE,
    place=1,
    examples=(
        ("posenc completion bash > ~/.local/share/bash-completion/completions/posenc", ""),
        ("posenc completion zsh > ~/.zfunc/_posenc", "if `fpath` contains ~/.zfunc"),
        ("posenc completion fish > ~/.config/fish/completions/posenc.fish", ""),
    ),
)
def completion(shell: Literal["bash", "zsh", "fish"], /) -> None:
    """Print a script that adds completion of posenc's commands and options to a shell.

    Parameters
    ----------
    shell
        The shell: bash, zsh or fish.
    """
    print(app.generate_completion(prog_name="posenc", shell=shell))


def unknown(word: str) -> str:
    """Return the message for an unknown command, with a suggestion.

    >>> unknown("rope")
    'there is no command `rope`: did you mean `posenc show rope`?'
    """
    # Imported here, because few runs need it
    from difflib import get_close_matches

    message = f"there is no command `{word}`"
    near = get_close_matches(word, [*COMMANDS], n=1, cutoff=0.7)
    if near:
        return f"{message}: did you mean `posenc {near[0]}`?"
    try:
        return (
            f"there is no command `{word}`: did you mean `posenc show {names.find(word)['name']}`?"
        )
    except LookupError:
        return f"{message}: `posenc help` lists all commands."
