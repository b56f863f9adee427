"""`posenc check`: whether a model's config says what its weights were trained with."""

import os
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter
from rich.console import Console

from posenc.commands.app import MODELS, command
from posenc.commands.errors import Failure, UsageError, finished, of_models
from posenc.commands.options import AsJson, Name, Place, print_json
from posenc.commands.progress import progress
from posenc.support.writing import written_beside

EXISTS = "{} exists, and nothing is overwritten: name a new file."
Rules = Annotated[tuple[str, ...], Parameter(negative="", consume_multiple=False)]


@command(
    MODELS,
    place=1,
    examples=(
        ("posenc check model/", "its config, by rules and by its own weights"),
        ("posenc check model/config.json --sarif faults.sarif", "the rules alone, for CI"),
    ),
)
def check(
    model: Name,
    /,
    *,
    text: Place | None = None,
    against: Place | None = None,
    sarif: Place | None = None,
    used_by: Annotated[str, Parameter(name="--for")] = "",
    strict: bool = False,
    ignore: Rules = (),
    as_json: AsJson = False,
) -> None:
    """Check a model's config by rules, by its other files, and by the word of its own weights.

    The right reading is the one under which the model predicts best: bases, layouts, shares of
    channels, scalings, factors, scales and windows are tried on a text. "No
    fault found" lists what could not have been found.

    The exit code is 0 if no fault was found, 1 for a fault (a file that is cut off, lacks tensors
    or holds NaN is one), 2 for wrong usage, 3 if it cannot be said, and 70 if the check itself
    failed.

    Parameters
    ----------
    model
        A config.json, for the rules alone; or a model folder or a GGUF file, whose weights are
        asked too, by transformers; or the model's id on the Hugging Face hub, for its config.
    text
        What the weights read, in UTF-8: a text such as they were trained on. By default, a novel.
    against
        Another file of the same model, such as its GGUF file, that must say the same. Those in the
        folder are compared without being asked for.
    sarif
        Write the findings to this new file as SARIF, which GitHub shows beside the lines.
    used_by
        Programs that will read the config, such as `vllm,mlx-vlm`: the keys that change its angles
        and that one of them ignores are named. Without it, a key on which programs disagree is.
    strict
        Count warnings as faults.
    ignore
        The name of a rule to switch off, such as `base-too-small`; may be given several times.
    as_json
        Print one JSON document.
    """
    from posenc.models.check.verdict import check as checked_by
    from posenc.models.files import hub

    if sarif is not None and os.path.lexists(sarif):
        raise UsageError(EXISTS.format(sarif))
    with finished(), of_models(), progress() as say:
        path = hub.local(model)
        names = [name.strip() for name in used_by.split(",") if name.strip()]
        checked = checked_by(path, _letters(text), against, say, names, strict, ignore)
    if sarif is not None:
        with finished():
            _write(checked, path, sarif)
    if as_json:
        print_json(checked.to_json())
    else:
        from posenc.show.report.terminal import checks

        checks.check(checked, Console())
    if checked.exit_code:
        raise SystemExit(checked.exit_code)


def _letters(text: Path | None) -> str | None:
    if text is None:
        return None
    from posenc.analysis.text import letters_of

    return letters_of(text)


def _write(checked: Any, path: Path, to: Path) -> None:
    """Write SARIF to a new file, which is there as a whole or not at all."""
    import json

    from posenc.models.check.sarif import sarif

    try:
        with written_beside(to) as part, part.open("x", encoding="utf-8") as file:
            json.dump(sarif(checked, path), file, ensure_ascii=False, indent=1)
            file.write("\n")
    except FileExistsError:
        raise UsageError(EXISTS.format(to)) from None
    except OSError as error:
        raise Failure(f"{to} cannot be written: {error.strerror}.") from None
