"""`posenc check`: tests of a model's config against rules, its other files and its weights."""

import os
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter
from rich.console import Console

from posenc.commands.app import MODELS, command
from posenc.commands.errors import Failure, UsageError, check_failures, model_errors
from posenc.commands.options import AsJson, Name, Place, print_json
from posenc.commands.progress import progress
from posenc.support.writing import written_beside

EXISTS = "`--sarif` must be a new file, got {}, which exists. Name another."
Rules = Annotated[tuple[str, ...], Parameter(negative="", consume_multiple=False)]


@command(
    MODELS,
    place=1,
    examples=(
        ("posenc check model/", "check the config by rules and by the model's weights"),
        ("posenc check model/config.json --sarif faults.sarif", "rules only, for CI"),
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
    """Check a model's config by rules, against its other files, and by the loss of its weights.

    The weights are tested on a text with other bases, layouts, shares of rotated channels,
    scalings, factors, scales and windows. The right reading of the config is the one with the
    lowest loss. "No fault found" lists the faults that could not be tested.

    The exit code is 0 for no fault, 1 for a fault (also a file that is cut off, lacks tensors or
    contains NaN), 2 for wrong usage, 3 for an unknown result, and 70 if the check itself failed.

    Parameters
    ----------
    model
        A config.json, for rules only; a model folder or a GGUF file, whose weights are tested by
        transformers; or the model's id on the Hugging Face hub, for its config.
    text
        A text in UTF-8 for the test of the weights, similar to their training data. By default a
        novel.
    against
        Another file of the same model, such as its GGUF file, that must agree with the config.
        Files in the model folder are always compared.
    sarif
        Write the findings to this new file as SARIF, which GitHub displays at the lines.
    used_by
        Programs that will read the config, such as `vllm,mlx-vlm`: report keys that change its
        angles and that one of these programs ignores. Without this option, report keys on which
        programs disagree.
    strict
        Count warnings as faults.
    ignore
        The name of a rule to disable, such as `base-too-small`; can be repeated.
    as_json
        Print one JSON document.
    """
    from posenc.models.check.verdict import check as checked_by
    from posenc.models.files import hub

    if sarif is not None and os.path.lexists(sarif):
        raise UsageError(EXISTS.format(sarif))
    with check_failures(), model_errors(), progress() as update:
        path = hub.local(model)
        names = [name.strip() for name in used_by.split(",") if name.strip()]
        checked = checked_by(path, _letters(text), against, update, names, strict, ignore)
    if sarif is not None:
        with check_failures():
            _write(checked, path, sarif)
    if as_json:
        print_json(checked.to_json())
    else:
        from posenc.show.report.terminal import checks

        checks.print_check(checked, Console())
    if checked.exit_code:
        raise SystemExit(checked.exit_code)


def _letters(text: Path | None) -> str | None:
    if text is None:
        return None
    from posenc.analysis.text import letters_of

    return letters_of(text)


def _write(checked: Any, path: Path, to: Path) -> None:
    """Write the findings of a check as SARIF to a new file, atomically."""
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
