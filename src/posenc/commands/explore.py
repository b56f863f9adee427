"""`posenc explore`: an interactive page that computes encodings in the browser."""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from posenc.commands.app import LOOK, command
from posenc.commands.errors import Failure, UsageError, model_errors, study_errors, user_code_errors
from posenc.commands.imports import no_garbage_collection
from posenc.commands.options import Flag, Name, Place, open_in_browser, packaged_card
from posenc.models.files import hub
from posenc.show.explorer import document, ready
from posenc.show.explorer.document import Explorer
from posenc.support import names
from posenc.support.text import printable


@command(
    LOOK,
    place=2,
    arguments="[WHAT...]",
    small=True,
    examples=(
        ("posenc explore", "an interactive page with sliders"),
        ("posenc explore rope alibi --out mine.html --no-browser", "two encodings, to a file"),
    ),
)
def explore(
    *what: Name,
    study: Place | None = None,
    out: Place = Path("explore.html"),
    browser: bool = True,
    force: Flag = False,
) -> None:
    """Write an interactive page about encodings, word order and context lengths, and open it.

    Parameters
    ----------
    what
        Encodings and models for the page, which shows these encodings first. An encoding is a name
        in `posenc list`, or an encoding of your own, written as my_module.py:Mine or
        package.module:Mine; posenc runs the code of this module. A model is a config.json, a model
        folder, or an id on the Hugging Face hub; no code of a model is run. From the first model
        folder with a tokenizer.json and weights, the page takes the embeddings of 2,000 common
        words.
    study
        The folder of a study made by `posenc study`, whose results the page also shows.
    out
        The HTML file to write, which can be opened offline. The file must be new, or an earlier
        explorer page.
    browser
        Open the page in a browser. With --no-browser, the command only writes the page.
    force
        Replace the file even if it is not an earlier explorer page.
    """
    # Names and places are checked before the slow import of torch
    with model_errors():
        items = [hub.local(name) if hub.is_model(name) else _encoding(name) for name in what]
    try:
        document.check_place(out, force)
    except OSError as error:
        raise UsageError(f"--out: {error}") from None
    pages = _pages(items, study, at_once=browser)
    page = next(pages)
    _write(page, out)
    if browser:
        open_in_browser(out)
    for page in pages:
        _write(page, out)
    for note in page.data["notes"]:
        print(f"note: {printable(note, 2_000)}", file=sys.stderr)
    print(f"{printable(str(out), 4_000)} is written, {len(page.html) / 2**20:.1f} MiB.")


def _pages(items: Sequence[str | Path], study: Path | None, at_once: bool) -> Iterator[Explorer]:
    """Yield the explorer page. With `at_once`, first yield an incomplete one if none is cached.

    A cached page of the catalogue is read without torch if the user names no model, study or own
    encoding.
    """
    catalog = study is None and all(item in names.cards() for item in items)
    if catalog and (made := ready.page([*dict.fromkeys(map(str, items))])):
        yield Explorer(made)
        return
    with no_garbage_collection():
        from posenc.show.explorer import data
        from posenc.show.explorer.explore import explorer, sorted_out

    def make(whole: bool) -> Explorer:
        with model_errors(), study_errors(), user_code_errors(cards):
            return explorer(cards, paths, study, whole)

    with model_errors():
        try:
            cards, paths = sorted_out(items)
        except LookupError as error:
            raise UsageError(error.args[0]) from None
    if at_once and ready.page() is None:
        yield make(whole=False)
    if lacking := data.unmeasured():
        print(
            f"note: measuring {lacking} encodings. Later pages reuse the results.", file=sys.stderr
        )
    with data.measured_beside():
        page = make(whole=True)
    yield page


def _write(page: Explorer, out: Path) -> None:
    try:
        document.write(page.html, out)
    except OSError as error:
        raise Failure(f"the page {out} could not be written: {error.strerror}.") from None


def _encoding(name: str) -> str:
    """Return the slug of a catalogue encoding, or the unchanged name of a user's own encoding.

    Raises UsageError for other names.
    """
    return name if names.is_own(name) else packaged_card(name)["name"]
