"""`posenc help` and `posenc completion`."""

from typing import Annotated, Literal

from cyclopts import Parameter

from posenc.commands.app import COMMANDS, HERE, app, command
from posenc.commands.errors import UsageError
from posenc.support import names


@command(
    HERE,
    place=2,
    takes="[COMMAND...]",
    examples=(("posenc help compare", "the same as `posenc compare --help`"),),
)
def help_(*words: Annotated[str, Parameter(name="COMMAND")]) -> None:
    """Show the help of a command, or of all.

    Parameters
    ----------
    words
        Its name.
    """
    if words and words[0] not in COMMANDS:
        raise UsageError(unknown(words[0]))
    app.help_print([*words])


@command(
    HERE,
    place=1,
    examples=(
        ("posenc completion bash > ~/.local/share/bash-completion/completions/posenc", ""),
        ("posenc completion zsh > ~/.zfunc/_posenc", "where `fpath` has ~/.zfunc"),
        ("posenc completion fish > ~/.config/fish/completions/posenc.fish", ""),
    ),
)
def completion(shell: Literal["bash", "zsh", "fish"], /) -> None:
    """Print a script that lets a shell complete commands and options.

    Parameters
    ----------
    shell
        bash, zsh or fish.
    """
    print(app.generate_completion(prog_name="posenc", shell=shell))


def unknown(word: str) -> str:
    """Say that there is no such command, and what may be meant.

    >>> unknown("rope")
    'there is no command `rope`: did you mean `posenc show rope`?'
    """
    # Imported here, since few commands need it
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
        return f"{message}: `posenc help` names all."
