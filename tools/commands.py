"""Generate the documentation page of posenc's commands from their help, for tools/table.py."""

import re
from collections.abc import Iterator

from posenc.commands.app import COMMANDS, GROUPS
from posenc.commands.cli import app

HEAD = (
    "# Commands\n\n"
    "This page has the help of every command, as `posenc help COMMAND` prints it."
    " `python tools/table.py` writes this page. Every command prints its results to standard"
    " output, and progress and errors to standard error. The exit code of a command is 0 if it"
    " succeeded, 1 if it failed, 2 for wrong usage, and 130 if it was interrupted. The help of"
    " `check` and `show` states further exit codes. A test runs every example on this page.\n"
)


def section(name: str) -> Iterator[str]:
    """Yield the lines of a command's section: usage, help and examples."""
    text = app[name].generate_docs(heading_level=3)
    # cyclopts writes how Python was started before the options and arguments
    words = re.search(r"```console\n.*?((?:\[|--[a-z]|[A-Z]{2}).*)\n```", text)
    usage = app[name].usage or f"posenc {name} {words[1] if words else ''}"
    text = text.partition("```console")[2].partition("```")[2]
    text = re.sub(r"\n {2,}(?=\S)", " ", text).replace("**Parameters**:", "**Options**:")
    text = re.sub(r' \*\[default: (False|\(\)|"")\]\*', "", text)
    text = re.sub(r"(?<=[^\n])\n(?=[^\n*#])", " ", text)  # each paragraph on one line
    yield f"\n### {name}\n"
    yield f"`{usage.removeprefix('Usage: ')}`"
    yield re.sub(r"\n{2,}", "\n\n", f"\n{text.strip()}\n")
    yield "```sh"
    for line, meaning in COMMANDS[name].examples:
        yield f"{line}  # {meaning}" if meaning else line
    yield "```"


def page() -> str:
    lines = [HEAD]
    for group in GROUPS:
        names = [name for name, declared in COMMANDS.items() if declared.group is group]
        names.sort(key=lambda name: COMMANDS[name].place)
        lines += [f"## {group.name}", *(line for name in names for line in section(name)), ""]
    return "\n".join(lines).rstrip() + "\n"
