"""Shared options of commands: names, paths, numbers of tokens, output folders and JSON."""

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
from posenc.show.report.output_folder import EXPLORER
from posenc.show.report.terminal import output
from posenc.support import names
from posenc.support.extras import how_to_install
from posenc.support.text import printable, shown

LARGEST = 2**53  # greatest integer that all readers of JSON represent exactly
UNITS = {"k": 2**10, "K": 2**10, "m": 2**20, "M": 2**20}  # suffixes of numbers of tokens
PAGE_WIDTH = 183.0  # millimetres


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
        f"`{words[0].keyword}` must be a whole number of tokens from 1 to {LARGEST:,}, such as 128k"
        f" (131,072) or 1M (1,048,576), got {shown(text, 40)}."
    )


def path_name(_: type, words: Sequence[Token]) -> str:
    """Read a path; raise an error for an empty path, for instance from an unset shell variable."""
    path = words[0].value
    if not path or "\0" in path:
        named = words[0].keyword or "the path"
        got = "an empty text" if not path else "a zero byte in it"
        raise UsageError(f"`{named}` must be a path, got {got}.")
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
        help="A class or function of your own that a plan or a results file names, such as"
        " my_module.py:Mine, and that posenc may run. Spell the name as the file does. The option"
        " can be repeated; posenc runs no other code that is named in files.",
    ),
]


@Parameter(name="*")
@dataclass(frozen=True)
class Output:
    """The options for output, shared by all commands that write a page.

    Attributes
    ----------
    out
        The folder for the page `index.html`, which can be opened offline, and the numbers
        `results.json`. The folder must be new, be empty, or contain an earlier report.
    figures
        Also write each figure of the page as a file into the folder `figures`, in this format: png,
        svg or pdf.
    width
        The width of the figure files in millimetres: 85 for a column of a paper, 183 for a full
        page.
    force
        Write into the output folder even if it contains other files. Only pages that posenc wrote
        before are replaced.
    open
        Open the page in a browser.
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
        """Check the output options and the output folder before the measurements begin.

        - `beside`: the page may be written into a folder with other files, such as that of a study
        """
        for given, option in ((self.figures, "--figures"), (self.open, "--open")):
            if given and self.out is None:
                raise UsageError(
                    f"`{option}` needs `--out`, the folder of the page. Add --out FOLDER."
                )
        if self.out is not None:
            _reserve(self.out, self.force, beside)

    def write(
        self, result: Any, progress: Progress = quiet, views: dict[str, str] | None = None
    ) -> None:
        """Write the page of a result into the folder `--out`, if one is given."""
        if self.out is not None:
            write_page(result, self.out, progress, self.figures, self.width, views)

    def print_result(self, result: Any) -> None:
        """Print a result, as JSON or as tables with the path of its page.

        The page is opened if the option `open` is set.
        """
        if self.json:
            print_json(result.to_json())
        else:
            from posenc.show.report.kinds import kind_of

            console = Console()
            kind_of(result).print_result(result, console)
            self.print_paths(console)
        self.open_page()

    def open_page(self) -> None:
        if self.open and self.out is not None:
            open_in_browser(self.out / "index.html")

    def print_paths(self, console: Console) -> None:
        if self.out is None:
            return
        files = {"The page": "index.html", "The explorer": EXPLORER, "The numbers": "results.json"}
        console.print()
        for what, name in files.items():
            if (path := self.out / name).exists():
                # Without wrapping, so that a path can be copied
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
        raise Failure(f"the page in {out} could not be written: {error.strerror}.") from None


def _reserve(out: Path, force: bool, beside: bool) -> None:
    """Raise UsageError if no page can be written to the folder `out`."""
    try:
        from posenc.show.report import page
    except ImportError as error:
        raise UsageError(
            f"`--out` needs the extra `report` ({error.name} is missing):"
            f" {how_to_install('report')}"
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


def packaged_card(name: str) -> dict[str, Any]:
    """Return an encoding's catalogue data without importing torch.

    Raises UsageError for an unknown name.
    """
    try:
        return names.find(name)
    except LookupError as error:
        raise UsageError(error.args[0]) from None


def cards_of(wanted: Sequence[str]) -> list[Any]:
    """Return the catalogue entries of encodings. Raises UsageError for unknown names."""
    for name in wanted:
        if not names.is_own(name):
            packaged_card(name)
    from posenc.catalog import choose

    try:
        return choose(wanted)
    except LookupError as error:
        raise UsageError(error.args[0]) from None


def allowed(wanted: Sequence[str]) -> Sequence[str]:
    """Check and return the encodings that `--allow-code` names, such as my_module.py:Mine.

    Raises UsageError for a name that is not like my_module.py:Mine.
    """
    for name in wanted:
        if not names.is_own(name):
            raise UsageError(
                "`--allow-code` must name a file and a class, as in my_module.py:Mine, got"
                f" {shown(name)}."
            )
    return wanted
