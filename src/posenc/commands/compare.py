"""`posenc compare` and `posenc report`: encodings measured on a text, side by side and closely."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter, validators

from posenc.commands.app import MEASURE, command
from posenc.commands.errors import UsageError, own_code
from posenc.commands.options import NOWHERE, Output, Place, chosen
from posenc.commands.progress import progress

Rounds = Annotated[int, Parameter(validator=validators.Number(gte=1, lte=1_000))]


@command(
    MEASURE,
    place=0,
    takes="[NAMES...]",
    small=True,
    examples=(
        ("posenc compare --out report/", "all of them on a novel, with a page to look at"),
        ("posenc compare rope alibi --text mine.txt", "two of them on a text of yours"),
        (
            "posenc compare rope alibi --out report/ --figures svg --width 85",
            "figures as wide as a column of a paper",
        ),
    ),
)
def compare(
    *names: str, text: Place | None = None, rounds: Rounds | None = None, output: Output = NOWHERE
) -> None:
    """Measure encodings side by side on a real text; all of them, unless you name some.

    With --out, the page links to the explorer, which is written beside it.

    Parameters
    ----------
    names
        As `posenc list` spells them; encodings of your own as my_module.py:Mine or
        package.module:Mine, which runs that code.
    text
        A text file in UTF-8; by default Jane Austen's Northanger Abbey.
    rounds
        The number of times that each layer is timed, 9 by default. More rounds take longer and give
        narrower intervals.
    """
    cards = chosen(names)
    parsed = _read(text)
    output.prepare()
    from posenc.lab.compare import comparison

    settings = comparison.Settings()
    if rounds is not None:
        settings = replace(settings, cost_rounds=rounds)
    with own_code(cards), progress() as say:
        result = comparison.compare(cards, parsed, settings, progress=say)
        output.write(result, say, _explorer(cards, output.out))
    output.show(result)


@command(
    MEASURE,
    place=1,
    takes="[NAMES...]",
    small=True,
    examples=(
        ("posenc report rope alibi --out closer/", ""),
        ("posenc report rope --text mine.txt --out closer/ --figures pdf", "figures for a paper"),
    ),
)
def report(
    *names: str, text: Place | None = None, model: Place | None = None, output: Output = NOWHERE
) -> None:
    """Look closely at a few encodings, and at what a real model does with its own.

    Parameters
    ----------
    names
        As `posenc list` spells them; encodings of your own as my_module.py:Mine or
        package.module:Mine, which runs that code. The way from integers to RoPE and ALiBi, unless
        you name some.
    text
        A text file in UTF-8; by default Jane Austen's Northanger Abbey.
    model
        A folder with a model of transformers, in safetensors, and its tokenizer.json; it reads the
        text. No code of it is run, and nothing is fetched.
    """
    if output.out is None:
        raise UsageError("a report is a page: name its folder with --out.")
    cards = chosen(names)
    parsed = _read(text)
    output.prepare()
    from posenc.analysis.text import novel
    from posenc.lab.compare import portrait

    parsed = parsed or novel()
    with own_code(cards), progress() as say:
        if model is not None:
            say("reading the text with the model", 0, 1)
        reading = None if model is None else _read_quietly(model, parsed)
        result = portrait.portray(cards, parsed, reading, progress=say)
        output.write(result, say, _explorer(cards, output.out))
    output.show(result)


def _read(path: Path | None) -> Any:
    """Read the text of a file; None stands for the packaged novel."""
    from posenc.analysis import text

    try:
        return None if path is None else text.load_text(path)
    except ValueError as error:
        raise UsageError(f"--text: {error}.") from None


def _read_quietly(folder: Path, text: Any) -> Any:
    """Run a model on a text, and keep the messages of transformers to ourselves."""
    from posenc.lab.compare import real_model

    with suppress(ImportError):
        from transformers.utils import logging

        logging.disable_progress_bar()
        logging.set_verbosity_error()
    try:
        return real_model.read(folder, text)
    except (ValueError, TypeError, ImportError, OSError) as error:
        raise UsageError(f"--model: {error}") from None


def _explorer(cards: Sequence[Any], out: Path | None) -> dict[str, str] | None:
    """Write the explorer beside a report: the names of its views; None if a file is in the way."""
    if out is None:
        return None
    from posenc.catalog import CATALOG
    from posenc.show.explorer import data, document
    from posenc.show.report.saving.folder import EXPLORER

    try:
        out.mkdir(parents=True, exist_ok=True)
        document.check_place(out / EXPLORER)
        with own_code(cards):
            document.write(document.Explorer(data.page(cards)).html, out / EXPLORER)
    except OSError:
        return None
    return {card.slug: data.renamed(card).slug for card in cards or CATALOG}
