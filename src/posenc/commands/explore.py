"""`posenc explore`: a page that runs the encodings themselves."""

import sys
from pathlib import Path

from posenc.commands.app import LOOK, command
from posenc.commands.errors import Failure, UsageError, of_models, of_studies, own_code
from posenc.commands.imports import uncollected
from posenc.commands.options import Flag, Name, Place, open_in_browser, printed_card
from posenc.models.files import hub
from posenc.support import names
from posenc.support.text import printable


@command(
    LOOK,
    place=2,
    takes="[WHAT...]",
    small=True,
    examples=(
        ("posenc explore", "a page that runs the encodings, with sliders"),
        ("posenc explore rope alibi --out mine.html --no-browser", "two of them, to a file"),
    ),
)
def explore(
    *what: Name,
    study: Place | None = None,
    out: Place = Path("explore.html"),
    browser: bool = True,
    force: Flag = False,
) -> None:
    """Write a page that runs the encodings themselves, and open it: sliders, order, context.

    Parameters
    ----------
    what
        Encodings to begin with, as `posenc list` spells them; encodings of your own as
        my_module.py:Mine or package.module:Mine, which runs that code; and models: a config.json, a
        model folder, or an id on the Hugging Face hub. No code of a model is run. The first folder
        with a tokenizer.json and weights gives 2,000 common words their vectors.
    study
        The folder of a study, whose results stand beside the encodings.
    out
        The file, which opens offline. It must be new, or an earlier page.
    browser
        Open the page; with --no-browser it is only written.
    force
        Replace the file whatever it is.
    """
    # A typo is answered before torch is imported
    with of_models():
        items = [hub.local(name) if hub.is_model(name) else _encoding(name) for name in what]
    with uncollected():
        from posenc.show.explorer import data, document
        from posenc.show.explorer.document import Explorer
        from posenc.show.explorer.explore import explorer, sorted_out

    try:
        document.check_place(out, force)
    except OSError as error:
        raise UsageError(f"--out: {error}") from None
    lacking = data.unmeasured()

    def write(whole: bool) -> Explorer:
        with of_models(), of_studies():
            try:
                cards, paths = sorted_out(items)
            except LookupError as error:
                raise UsageError(error.args[0]) from None
            with own_code(cards):
                page = explorer(cards, paths, study, whole)
        try:
            document.write(page.html, out)
        except OSError as error:
            raise Failure(f"{out} could not be written: {error.strerror}.") from None
        return page

    if lacking and browser:
        write(whole=False)
        open_in_browser(out)
    if lacking:
        print(f"note: {lacking} encodings are measured, once for all pages.", file=sys.stderr)
    page = write(whole=True)
    for note in page.data["notes"]:
        print(f"note: {printable(note, 2_000)}", file=sys.stderr)
    print(f"{printable(str(out), 4_000)} is written, {len(page.html) / 2**20:.1f} MiB.")
    if browser and not lacking:
        open_in_browser(out)


def _encoding(name: str) -> str:
    """Return a name of the catalogue, or of one's own code. Raises UsageError on a typo."""
    if not names.is_own(name):
        printed_card(name)
    return name
