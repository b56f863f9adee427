"""Write docs/commands.md from the help of the commands, and report a stale page with --check."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

from posenc.commands.cli import GROUPS, app
from posenc.commands.examples import EXAMPLES

PAGE = Path(__file__).parent.parent / "docs/commands.md"
HEAD = """\
# Commands

The help of every command, as `posenc help COMMAND` prints it. `python tools/commands.py` writes
this page. Data goes to standard output, progress and errors to standard error. Exit codes: 0 done,
1 failed, 2 wrong usage, 130 interrupted; `check` and `show` state theirs below. A test runs every
example.
"""


def section(name: str) -> Iterator[str]:
    """Write the help and the examples of a command."""
    text = app[name].generate_docs(heading_level=3, usage_name=f"posenc {name}")
    usage = app[name].usage or re.findall(r"```console\n(.*?)\n```", text)[0]
    text = text.partition("```console")[2].partition("```")[2]
    text = re.sub(r"\n {2,}(?=\S)", " ", text).replace("**Parameters**:", "**Options**:")
    text = re.sub(r' \*\[default: (False|\(\)|"")\]\*', "", text)
    yield f"\n### {name}\n"
    yield f"`{usage.removeprefix('Usage: ')}`"
    yield re.sub(r"\n{2,}", "\n\n", f"\n{text.strip()}\n")
    yield "```sh"
    for line, meaning in EXAMPLES[name]:
        yield f"{line}  # {meaning}" if meaning else line
    yield "```"


def page() -> str:
    lines = [HEAD]
    for title, names in GROUPS.items():
        lines += [f"## {title}", *(line for name in names for line in section(name)), ""]
    return "\n".join(lines).rstrip() + "\n"


def main() -> None:
    fresh = page()
    if "--check" not in sys.argv:
        PAGE.write_text(fresh, "utf-8")
    elif not PAGE.exists() or PAGE.read_text("utf-8") != fresh:
        sys.exit("docs/commands.md is stale: run `python tools/commands.py`.")


if __name__ == "__main__":
    main()
