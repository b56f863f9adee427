"""Generate the documentation page of posenc's commands from their help, for tools/table.py."""

import re
from collections.abc import Iterator

from posenc.commands.app import COMMANDS, GROUPS
from posenc.commands.cli import app

HEAD = """\
# Commands

The help of every command, as `posenc help COMMAND` prints it. `python tools/table.py` writes
this page. Data goes to standard output, progress and errors to standard error. Exit codes: 0 done,
1 failed, 2 wrong usage, 130 interrupted; `check` and `show` state theirs below. A test runs every
example.
"""


def section(name: str) -> Iterator[str]:
    """Yield the lines of a command's section: usage, help and examples."""
    text = app[name].generate_docs(heading_level=3)
    # cyclopts writes how Python was started before the options and arguments
    words = re.search(r"```console\n.*?((?:\[|--[a-z]|[A-Z]{2}).*)\n```", text)
    usage = app[name].usage or f"posenc {name} {words[1] if words else ''}"
    text = text.partition("```console")[2].partition("```")[2]
    text = re.sub(r"\n {2,}(?=\S)", " ", text).replace("**Parameters**:", "**Options**:")
    text = re.sub(r' \*\[default: (False|\(\)|"")\]\*', "", text)
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
