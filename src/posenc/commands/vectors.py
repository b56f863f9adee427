"""`posenc vectors`: write test vectors of encodings, or test another implementation."""

from pathlib import Path
from typing import Any, Literal

from posenc.commands.app import MODELS, command
from posenc.commands.errors import (
    Failure,
    UsageError,
    check_failures,
    model_errors,
    user_code_errors,
)
from posenc.commands.options import AsJson, Name, Place, Tokens, print_json
from posenc.support import names
from posenc.support.text import printable


@command(
    MODELS,
    place=5,
    examples=(
        ("posenc vectors --out vectors/", "about 2,700 test cases in JSON, with exact numbers"),
        ("posenc vectors --check vectors/", ""),
        (
            "posenc vectors --against mine.py:apply --config config.json",
            "finds and names faults of an implementation of RoPE",
        ),
    ),
)
def vectors(
    *,
    out: Place | None = None,
    check: Place | None = None,
    against: Name | None = None,
    config: Place | None = None,
    length: Tokens | None = None,
    layer: int | None = None,
    layout: Literal["half", "interleaved"] | None = None,
    as_json: AsJson = False,
) -> None:
    """Write test vectors for positional encodings, or test an implementation of RoPE.

    Test vectors are inputs and exact outputs, against which other programs can be tested. With
    --against, the exit code is 0 if no fault was found, 1 for a fault, 2 for wrong usage and 70 if
    the test itself failed.

    Parameters
    ----------
    out
        A new folder for test vectors of every encoding, every context extension, every rule of
        position ids, and the layers of published models.
    check
        A folder with test vectors. The command compares the digests of the files, and compares each
        number with the number that posenc computes.
    against
        The implementation of RoPE to test: a function `apply(q, k, positions)`, written as
        my_module.py:apply or package.module:apply, whose code posenc runs. `apply` must return the
        rotated q and k. All arguments are torch tensors: q and k have the shape (batch, head,
        token, channel), and positions have the shape (batch, token) or (batch, token, axis), or
        (axis, batch, token) if `apply` raises an error for (batch, token, axis).
    config
        The config.json of the model whose RoPE the function `apply` computes.
    length
        The length of the text in tokens, for models whose rotation angles depend on this length. By
        default, the command tests the longest text that the config allows, and before and after it
        a text of the trained length.
    layer
        The index of the layer whose RoPE `apply` computes. By default, the first layer that has
        RoPE and no attention window.
    layout
        The layout of the rotated pairs of channels, if the program with `apply` reorders the
        weights when it loads them. By default, the layout of the model's files.
    as_json
        Print one JSON document.
    """
    chosen = [word for word in (out, check, against) if word is not None]
    if len(chosen) != 1:
        raise UsageError(
            "`posenc vectors` must be called with one of --out, --check and --against, got"
            f" {len(chosen) or 'none'}. Name exactly one."
        )
    if (against is None) != (config is None):
        raise UsageError(
            "--against and --config must be given together, got only one of the two. Add the other"
            " option."
        )
    if against is not None and config is not None:
        return _against(against, config, as_json, length, layer, layout)
    from posenc.lab.vectors import files

    try:
        if out is not None:
            count = files.write(out)
            print(f"{count:,} cases in {printable(str(out))}")
            return
        assert check is not None
        checked = files.check_folder(check)
    except (ValueError, FileExistsError) as error:
        raise UsageError(str(error)) from None
    except OSError as error:
        raise Failure(f"{error.filename}: {error.strerror}.") from None
    if as_json:
        print_json({"equal": checked.equal, "wrong": checked.wrong})
    else:
        print(f"{checked.equal:,} cases are equal")
        for line in checked.wrong:
            print(f"✗ {printable(line, 1_000)}")
    if checked.wrong:
        raise SystemExit(1)


def _against(name: str, config: Path, as_json: bool, *options: Any) -> None:
    from posenc.lab.vectors.against import against
    from posenc.models.files.strict import read_json

    if not names.is_own(name):
        raise UsageError(
            f"--against must name a function, such as my_module.py:apply, got {name!r}."
        )
    apply = _function(name)
    with check_failures(), model_errors():
        verdict = against(apply, read_json(config), *options)
    if as_json:
        print_json(verdict.to_json())
    else:
        for finding in verdict.findings:
            print(f"✗ {finding.name}. {finding.sentence}".rstrip())
        if verdict.passed:
            print(
                "no fault found: queries and keys are rotated as in the config. The largest error"
                f" of a pair of length 1 is {verdict.error:.2g}."
            )
        for line in verdict.notes:
            print(f"note: {line}")
    if not verdict.passed:
        raise SystemExit(1)


def _function(name: str) -> Any:
    """Load the function that `--against` names, by executing its file or module."""
    from posenc.properties import user_code

    with user_code_errors(()):
        try:
            found = user_code.named(name)
        except LookupError as error:
            raise UsageError(str(error)) from None
    if not callable(found):
        raise UsageError(f"--against must name a function, got {found!r:.60}.")
    return found
