"""`posenc compare` and `posenc report`: measurements of encodings on a text."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter, validators

from posenc.commands.app import MEASURE, command
from posenc.commands.errors import UsageError, user_code_errors
from posenc.commands.options import NOWHERE, Output, Place, cards_of
from posenc.commands.progress import progress

Rounds = Annotated[int, Parameter(validator=validators.Number(gte=1, lte=1_000))]


@command(
    MEASURE,
    place=0,
    arguments="[NAMES...]",
    small=True,
    examples=(
        ("posenc compare --out report/", "all encodings on a novel, with a page"),
        ("posenc compare rope alibi --text mine.txt", "two encodings on your own text"),
        (
            "posenc compare rope alibi --out report/ --figures svg --width 85",
            "figures as wide as a column of a paper",
        ),
    ),
)
def compare(
    *names: str, text: Place | None = None, rounds: Rounds | None = None, output: Output = NOWHERE
) -> None:
    """Measure encodings side by side on a real text; all encodings by default.

    With --out, the command writes a page of results, and the explorer page, to which the results
    link.

    Parameters
    ----------
    names
        Names in `posenc list`, or encodings of your own, written as my_module.py:Mine or
        package.module:Mine; posenc runs the code of these modules.
    text
        A text file in UTF-8; by default Jane Austen's Northanger Abbey.
    rounds
        How often to measure the time of each layer, 6 by default. More timings take longer
        and give narrower confidence intervals.
    """
    cards = cards_of(names)
    parsed = _read(text)
    output.prepare()
    from posenc.lab.compare import comparison

    settings = comparison.Settings()
    if rounds is not None:
        settings = replace(settings, cost_rounds=rounds)
    with user_code_errors(cards), progress() as update, _explorer_begun(output.out) as finished:

        def step(doing: str, done: int, of: int) -> None:
            update(doing, done, of)
            if doing == "timing":
                finished()

        result = comparison.compare(cards, parsed, settings, progress=step)
        output.write(result, update, _explorer(cards, output.out))
    output.print_result(result)


@command(
    MEASURE,
    place=1,
    arguments="[NAMES...]",
    small=True,
    examples=(
        ("posenc report rope alibi --out closer/", ""),
        ("posenc report rope --text mine.txt --out closer/ --figures pdf", "figures for a paper"),
    ),
)
def report(
    *names: str, text: Place | None = None, model: Place | None = None, output: Output = NOWHERE
) -> None:
    """Write a page with detailed figures of a few encodings, and of a real model.

    Parameters
    ----------
    names
        Names in `posenc list`, or encodings of your own, written as my_module.py:Mine or
        package.module:Mine; posenc runs the code of these modules. By default, the report shows
        integers, binary numbers, sinusoids, RoPE and ALiBi.
    text
        A text file in UTF-8; by default Jane Austen's Northanger Abbey.
    model
        A folder with a model of transformers, in safetensors, and its tokenizer.json. With --model,
        the report also shows measurements of this model on the text. No code from the folder is
        run, and nothing is downloaded.
    """
    if output.out is None:
        raise UsageError("`--out` must be the folder of the report, got none. Add --out report/.")
    cards = cards_of(names)
    parsed = _read(text)
    output.prepare()
    from posenc.analysis.text import novel
    from posenc.lab.compare import portrait

    parsed = parsed or novel()
    with user_code_errors(cards), progress() as update:
        if model is not None:
            update("reading the text with the model", 0, 1)
        reading = None if model is None else _read_quietly(model, parsed)
        result = portrait.portray(cards, parsed, reading, progress=update)
        output.write(result, update, _explorer(cards, output.out))
    output.print_result(result)


def _read(path: Path | None) -> Any:
    """Read a text file. Return None without a path, so that the packaged novel is measured."""
    from posenc.analysis import text

    try:
        return None if path is None else text.load_text(path)
    except ValueError as error:
        raise UsageError(f"--text: {error}.") from None


def _read_quietly(folder: Path, text: Any) -> Any:
    """Run a model on a text and return its reading; messages of transformers are not printed."""
    from posenc.lab.compare import real_model

    with suppress(ImportError):
        from transformers.utils import logging

        logging.disable_progress_bar()
        logging.set_verbosity_error()
    try:
        return real_model.read(folder, text)
    except (ValueError, TypeError, ImportError, OSError) as error:
        raise UsageError(f"--model: {error}") from None


def _explorer_begun(out: Path | None) -> AbstractContextManager[Callable[[], None]]:
    """Start a second process that measures all encodings of the catalogue for the explorer page.

    Returns a context manager with a function that waits until the process has finished. Call it
    before timing, which the other process would disturb.
    """
    if out is None:
        return nullcontext(lambda: None)
    from posenc.show.explorer import data

    return data.measured_beside()


def _explorer(cards: Sequence[Any], out: Path | None) -> dict[str, str] | None:
    """Write the explorer page next to a report, and return the names of the encodings on it.

    None is returned without a folder, or if another file has the explorer's name.
    """
    if out is None:
        return None
    from posenc.catalog import CATALOG
    from posenc.show.explorer import data, document
    from posenc.show.report.output_folder import EXPLORER

    try:
        out.mkdir(parents=True, exist_ok=True)
        document.check_place(out / EXPLORER)
        with user_code_errors(cards):
            document.write(document.Explorer(data.page(cards)).html, out / EXPLORER)
    except OSError:
        return None
    return {card.slug: data.renamed(card).slug for card in cards or CATALOG}
