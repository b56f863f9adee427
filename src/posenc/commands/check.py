"""`posenc check`: test a model's config by rules, against its other files, and by its loss."""

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
    """Check a model's config by rules, against the model's other files, and by the model's loss.

    To test the config by the weights, the command computes the model's loss on a text with the
    config as written, and with other bases, layouts, shares of rotated channels, scalings, scaling
    factors, softmax scales and attention windows. If another setting has a clearly lower loss, the
    config has a fault. If no fault is found, the output lists the faults that could not be tested.

    The exit code is 0 if no fault is found, and 1 for a fault. A file that is cut off, lacks
    tensors or contains NaN is a fault too. The exit code is 2 for wrong usage, 3 if the
    check has no answer, and 70 if the check itself failed.

    Parameters
    ----------
    model
        A config.json, which is checked by rules only; a model folder or a GGUF file, whose weights
        are also tested with transformers; or the model's id on the Hugging Face hub, of which only
        the config is downloaded and checked.
    text
        A text file in UTF-8 for the test of the weights. The text should be similar to the training
        data of the model. By default, posenc uses a novel.
    against
        Another file of the same model, such as a GGUF file, that must agree with the config. Files
        in the model folder are always compared with the config.
    sarif
        The path of a new SARIF file that lists the faults. GitHub shows the faults of SARIF files
        beside the lines of the config.
    used_by
        Programs that will read the config, such as `vllm,mlx-vlm`: report the keys that change the
        rotation angles and that one of these programs ignores. Without this option, report keys
        that some known programs use and others ignore.
    strict
        Count warnings as faults.
    ignore
        The name of a rule to switch off, such as `base-too-small`. The option can be repeated.
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
        raise Failure(f"the SARIF file {to} cannot be written: {error.strerror}.") from None
