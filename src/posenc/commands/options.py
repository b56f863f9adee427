"""Options that several commands have: names and paths, what is written, and how it is shown."""

import json as json_text
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter, Token, validators
from rich.console import Console

from posenc.commands.errors import Failure, UsageError
from posenc.commands.progress import Progress, quiet
from posenc.show.report.saving.folder import EXPLORER
from posenc.show.report.terminal import output
from posenc.support import names
from posenc.support.extras import how_to_install
from posenc.support.text import printable, shown

LARGEST = 2**53  # beyond, readers of JSON disagree
UNITS = {"k": 2**10, "K": 2**10, "m": 2**20, "M": 2**20}  # of tokens
PAGE_WIDTH = 183.0


def token_count(_: type, words: Sequence[Token]) -> int:
    """Read a number of tokens: 131072, 131_072, 1e6, 128k or 1M, where k is 1,024 and M 1,024²."""
    text = words[0].value
    number, unit = (text[:-1], UNITS[text[-1]]) if text[-1:] in UNITS else (text, 1)
    with suppress(ValueError, OverflowError):
        whole = number.lstrip("-").replace("_", "").isdecimal()
        count = int(number) * unit if whole else float(number) * unit
        if count == int(count) and 1 <= count <= LARGEST:
            return int(count)
    raise UsageError(
        f"`{words[0].keyword}` is a whole number of tokens from 1 to {LARGEST:,}, also as 128k"
        f" (131,072) or 1M (1,048,576), got {shown(text, 40)}."
    )


def path_name(_: type, words: Sequence[Token]) -> str:
    """Read a path. An empty one, as of a variable that is not set, does not mean this folder."""
    path = words[0].value
    if not path or "\0" in path:
        what = words[0].keyword or "the path"
        raise UsageError(f"`{what}` is {'empty' if not path else 'no path: it holds a zero byte'}.")
    return path


def place(_: type, words: Sequence[Token]) -> Path:
    return Path(path_name(str, words))


Tokens = Annotated[int, Parameter(converter=token_count)]
Place = Annotated[Path, Parameter(converter=place)]
Name = Annotated[str, Parameter(converter=path_name)]
Names = Annotated[Sequence[str], Parameter(consume_multiple=True, negative="")]
Flag = Annotated[bool, Parameter(negative="")]
AsJson = Annotated[bool, Parameter(name="--json", negative="")]
AllowCode = Annotated[
    Sequence[str],
    Parameter(
        negative="",
        help="Run this code, my_module.py:Mine, which a file names, spelled as it is there; give it"
        " again for more. No other code that a file names is run.",
    ),
]


@Parameter(name="*")
@dataclass(frozen=True)
class Output:
    """Where a result goes, and how it is shown: the same options in each command that has a page.

    Attributes
    ----------
    out
        A folder for `index.html`, which opens offline, and `results.json`. It must be new, empty,
        or hold an earlier report.
    figures
        Write each figure as a file too, in the folder `figures`: png, svg or pdf.
    width
        Millimetres of those files across: 85 is a column of a paper, 183 a page.
    force
        Write into the folder whatever else it holds. Only earlier pages are ever replaced.
    open
        Show the page in a browser.
    json
        Print one JSON document instead of tables.
    """

    out: Place | None = None
    figures: Literal["png", "svg", "pdf"] | None = None
    width: Annotated[float, Parameter(validator=validators.Number(gte=40, lte=1_000))] = PAGE_WIDTH
    force: Flag = False
    open: Flag = False
    json: Flag = False

    def prepare(self, beside: bool = False) -> None:
        """Check what is asked to be written, before the work begins."""
        for asked, option in ((self.figures, "--figures"), (self.open, "--open")):
            if asked and self.out is None:
                raise UsageError(f"{option} needs a page: name its folder with --out.")
        if self.out is not None:
            _writable(self.out, self.force, beside)

    def write(
        self, result: Any, progress: Progress = quiet, views: dict[str, str] | None = None
    ) -> None:
        """Write the page of a result, where one is asked for."""
        if self.out is not None:
            write_page(result, self.out, progress, self.figures, self.width, views)

    def show(self, result: Any) -> None:
        """Say what was found, as JSON or as its tables, and where its page is; open that."""
        if self.json:
            print_json(result.to_json())
        else:
            from posenc.show.report.kinds import kind_of

            console = Console()
            kind_of(result).show(result, console)
            self.say_where(console)
        self.open_page()

    def open_page(self) -> None:
        if self.open and self.out is not None:
            open_in_browser(self.out / "index.html")

    def say_where(self, console: Console) -> None:
        if self.out is None:
            return
        files = {"The page": "index.html", "The explorer": EXPLORER, "The numbers": "results.json"}
        console.print()
        for what, name in files.items():
            if (path := self.out / name).exists():
                # Paths stay whole
                line = f"{what}: {printable(str(path), 4_000)}"
                console.print(line, markup=False, highlight=False, soft_wrap=True)


NOWHERE = Output()


def write_page(
    result: Any,
    out: Path,
    progress: Progress = quiet,
    figures: str | None = None,
    width: float = PAGE_WIDTH,
    views: dict[str, str] | None = None,
) -> None:
    from posenc.show.report import page

    try:
        page.write(result, out, figures, views, width, progress)
    except OSError as error:
        raise Failure(f"{out} could not be written: {error.strerror}.") from None


def _writable(out: Path, force: bool, beside: bool) -> None:
    """Check the folder before the work begins, so that nothing is measured in vain."""
    try:
        from posenc.show.report import page
    except ImportError as error:
        raise UsageError(
            f"--out needs the extra `report` ({error.name} is missing): {how_to_install('report')}"
        ) from None
    try:
        page.reserve(out, force, beside)
    except OSError as error:
        raise UsageError(f"--out: {error}") from None


def open_in_browser(page: Path) -> None:
    import webbrowser

    with suppress(webbrowser.Error):
        if webbrowser.open(page.resolve().as_uri()):
            return
    print("note: no browser could be opened here; open the file in one.", file=sys.stderr)


def print_json(document: Any) -> None:
    plain = not output.universal()
    print(json_text.dumps(document, ensure_ascii=plain, indent=1, allow_nan=False))


def printed_card(name: str) -> dict[str, Any]:
    """The printed card of an encoding of the catalogue; a typo is answered without torch."""
    try:
        return names.find(name)
    except LookupError as error:
        raise UsageError(error.args[0]) from None


def chosen(wanted: Sequence[str]) -> list[Any]:
    """The cards of these encodings."""
    for name in wanted:
        if not names.is_own(name):
            printed_card(name)
    from posenc.catalog import choose

    try:
        return choose(wanted)
    except LookupError as error:
        raise UsageError(error.args[0]) from None


def allowed(wanted: Sequence[str]) -> Sequence[str]:
    """Check the names of code that may be run."""
    for name in wanted:
        if not names.is_own(name):
            raise UsageError(f"`--allow-code` names code as my_module.py:Mine, got {shown(name)}.")
    return wanted
