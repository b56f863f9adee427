"""`posenc inspect`, `posenc extend` and `posenc convert`: reading and writing model files."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from rich.console import Console

from posenc.commands.app import MODELS, command
from posenc.commands.errors import UsageError, model_errors
from posenc.commands.options import NOWHERE, AsJson, Flag, Name, Output, Place, Tokens, print_json
from posenc.commands.progress import progress

if TYPE_CHECKING:
    from posenc.models.extend import Extension

ComputesIn = Literal["float32", "bfloat16"]


@command(
    MODELS,
    place=0,
    arguments="MODEL [OTHER]",
    small=True,
    examples=(
        ("posenc inspect model/", "positional encoding of each layer, from config.json"),
        ("posenc inspect model/ --target 131072", "problems at that length, with remedies"),
        ("posenc inspect model/ --out page/ --figures svg", "a page, and its figures as files"),
        ("posenc inspect model/ other/", "differences between two models"),
    ),
)
def inspect(
    model: Name,
    other: Name | None = None,
    /,
    *,
    target: Tokens | None = None,
    weights: Flag = False,
    output: Output = NOWHERE,
) -> None:
    """Show the positional encoding of each layer of a model, and its problems with longer texts.

    Parameters
    ----------
    model
        A config.json, a model folder, or a file of weights; or the model's id on the Hugging Face
        hub, from which posenc downloads the config. No code of a model is run, and no pickle is
        loaded.
    other
        A second model. With OTHER, the command shows only the differences between the two models.
    target
        The length of a text in tokens: 131072, or 128k (k is 1,024, M is 1,048,576). Show whether
        the model can read a text of this length, its problems with the text, and remedies. If the
        config lacks facts for an answer, show the missing facts. The exit code is 0 for every
        answer.
    weights
        Also read the weights (safetensors or GGUF), and show measurements of position tables and
        biases, the size of the weights of each rotated pair, and evidence for the layout.
    """
    from posenc.models import inspection
    from posenc.models.files import hub

    with model_errors():
        path = hub.local(model, weights)
    if other is not None:
        return _differences(path, other, output.json)
    output.prepare()
    with model_errors(), progress() as update:
        if weights:
            update("reading weights", 0, 1)
        inspected = inspection.inspect(path, target, weights, "" if str(path) == model else model)
        output.write(inspected, update)
    output.print_result(inspected)


def _differences(path: Path, other: str, as_json: bool) -> None:
    """Print the differences between the positional settings of two models."""
    from posenc.models.check import differences
    from posenc.models.files import hub

    with model_errors():
        found = differences.compare(path, second := hub.local(other))
    if as_json:
        return print_json({"differences": differences.to_json(found)})
    from posenc.show.report.terminal import checks

    checks.print_differences(found, (str(path), str(second)), Console())


@command(
    MODELS,
    place=2,
    examples=(
        ("posenc extend model/ --to 131072 --method yarn", "keeps a copy of the old config"),
        ("posenc extend model/ --factor 4 --trained 32768 --method yarn", "Qwen3's recipe"),
    ),
)
def extend(
    path: Place,
    /,
    *,
    to: Tokens | None = None,
    method: str | None = None,
    factor: float | None = None,
    trained: Tokens | None = None,
    base: float | None = None,
    prove: Flag = False,
    text: Place | None = None,
    precision: ComputesIn = "float32",
    out: Place | None = None,
    part: str = "",
    as_json: AsJson = False,
) -> None:
    """Write a config with which a model reads longer texts, and keep a copy of the old config.

    Pass the new text length in tokens as --to, or pass --factor, the ratio of the new length to the
    trained length. If the config does not state the trained length, pass --trained too. The makers
    of Qwen3 recommend --factor 4 --trained 32768 --method yarn. With --prove, the command measures
    the model's loss with each method. The command then writes the config of the best method, if
    this method has a lower loss than reading only the last tokens.

    Parameters
    ----------
    path
        A config.json or a model folder. With --prove, a model folder with weights, or a GGUF file;
        for a GGUF file the command prints the new keys instead of writing a config.
    to
        The new text length in tokens: 131072, or 128k (k is 1,024, M is 1,048,576).
    method
        The extension method of a RoPE model: linear, ntk, dynamic, yarn, llama3, or base (a larger
        base, given as --base). The method table is for models with a learned position table: the
        command writes a copy of the model with an interpolated table to --out. For a vision model
        with the method table, --to is the side of a picture in pixels.
    factor
        The ratio of the new length to the trained length.
    trained
        The trained length of the model in tokens, if the config states a different length or none.
    base
        The new RoPE base for the method base. With --prove, the larger base to test.
    prove
        Measure with each method the model's loss by position, and how well the model recalls a key
        and copies tokens. If no method has a lower loss than reading only the last tokens, the exit
        code is 1 and nothing is written.
    text
        A text file in UTF-8 for --prove. By default, posenc uses a novel.
    precision
        The dtype of weights and activations for --prove. bfloat16 needs half of the memory of
        float32 for the weights, and less time on processors with bfloat16 instructions.
    out
        A new folder for a copy of the model with the new config; the original is unchanged. With
        --prove, the folder for the page of results.
    part
        Only with the method `table`: the part of the config that has the position table, such as
        vision_config or decoder.
    as_json
        Print the changes as one JSON document.
    """
    from posenc.models import extend as extension

    if prove:
        page = Output(out)
        page.prepare()
        return _prove(path, to, method or factor, text, base, trained, precision, page, as_json)
    if text is not None or precision != "float32":
        raise UsageError(
            "`--text` and `--precision` need `--prove`. Add `--prove`, or leave out `--text` and"
            " `--precision`."
        )
    if method == "table":
        return _resize(path, to, out, part, factor or trained or base, as_json)
    if part:
        raise UsageError(
            "`--part` needs `--method table`. Add `--method table`, or leave out `--part`."
        )
    if method is None:
        raise UsageError(
            "`--method` or `--prove` must be given, got neither. Name a method, or add `--prove`"
            " to test all methods."
        )
    with model_errors():
        extended = extension.extend(path, to, method, factor, trained, base, out)
    _print_extension(extended, as_json)


def _resize(
    path: Path, to: int | None, out: Path | None, part: str, other: object, as_json: bool
) -> None:
    """Write a copy of a model with a longer table of position embeddings."""
    from posenc.models.resize import resize

    if to is None or out is None or other is not None:
        raise UsageError(
            "`--method table` needs `--to` and `--out`, and accepts no other options except"
            " `--part`. Add `--to` and `--out`, or leave out the other options."
        )
    with model_errors():
        resized = resize(path, to, out, part)
    if as_json:
        return print_json(vars(resized) | {"out": str(resized.out)})
    print(f"{resized.tensor}: {resized.before:,} → {resized.after:,} rows")
    print(f"{resized.key}: {json.dumps(resized.value)}")
    for note in resized.notes:
        print(f"note: {note}")
    print(f"{resized.out} is written; the original model is unchanged. Train the copy further.")


def _print_extension(
    extended: "Extension", as_json: bool, more: dict[str, Any] | None = None
) -> None:
    """Print the changed settings of a config, and server commands that apply the extension."""
    if as_json:
        changes = [vars(change) for change in extended.changes]
        document = {"config": str(extended.config), "kept": str(extended.kept), "changes": changes}
        document |= {"notes": extended.notes, "folder": extended.folder}
        document |= {"serving": extended.serving, "cache": extended.cache}
        return print_json(document | (more or {}))
    for change in extended.changes:
        before = "nothing" if change.before is None else json.dumps(change.before)
        print(f"{change.key}: {before} → {json.dumps(change.after, ensure_ascii=False)}")
    for note in extended.notes:
        print(f"note: {note}")
    kept = extended.kept
    where = kept.name if kept.parent == extended.config.parent else str(kept)
    print(f"{extended.config} is written; the old config is kept as {where}.")
    print(f"keys and values of the longest text need {extended.cache / 2**30:,.2f} GiB in 16 bits")
    print("serve the folder with the new config:")
    for server, line in extended.folder.items():
        print(f"  {server}: {line}")
    print("or serve the model with its old config and these options:")
    for server, line in extended.serving.items():
        print(f"  {server}: {line}")


def _prove(
    path: Path,
    to: int | None,
    other: object,
    text: Path | None,
    base: float | None,
    trained: int | None,
    precision: ComputesIn,
    page: Output,
    as_json: bool,
) -> None:
    """Measure a model's loss with every extension method, and write the best config if it helps."""
    from posenc.analysis.text import letters_of
    from posenc.models import extend as extension
    from posenc.models.prove import prove
    from posenc.show.report.terminal import checks

    if to is None or other is not None:
        raise UsageError(
            "`--prove` needs `--to`, and does not accept `--method` or `--factor`, because"
            " `--prove` tests all methods. Add `--to`, or leave out `--method` and `--factor`."
        )
    with model_errors(), progress() as update:
        proof = prove(
            path, to, letters_of(text) if text else None, base, trained, update, precision
        )
        page.write(proof, update)
    if not as_json:
        checks.print_proof(proof, Console())
        page.print_paths(Console())
    if not proof.chosen:
        if as_json:
            print_json({"proof": proof.to_json()})
        raise SystemExit(1)
    if path.suffix == ".gguf":
        document = {"proof": proof.to_json(), "keys": proof.gguf_keys}
        return print_json(document) if as_json else checks.print_keys(proof.gguf_keys)
    with model_errors():
        extended = extension.write(path, proof.ways[0].config, proof.notes, to)
    _print_extension(extended, as_json, {"proof": proof.to_json()})


@command(
    MODELS,
    place=3,
    small=True,
    examples=(("posenc convert model/ --layout interleaved --out other/", "exact to the bit"),),
)
def convert(
    path: Place,
    /,
    *,
    layout: Literal["half", "interleaved"],
    out: Place,
    was: Literal["half", "interleaved"] | None = None,
    as_json: AsJson = False,
) -> None:
    """Write a copy of a model whose query and key weights have the other RoPE layout.

    Parameters
    ----------
    path
        A model folder with a config.json and weights in safetensors; or a GGUF file, which the
        command converts to a model folder. Quantised weights are written in float32.
    layout
        The new layout. In the layout half, the two channels of a rotated pair are half a head
        apart; in the layout interleaved, they are adjacent.
    out
        A new folder for the copy.
    was
        The current layout of the weights. By default, posenc uses the layout of the model's type,
        if the weights do not show the other layout.
    as_json
        Print the result as one JSON document.
    """
    from posenc.models import convert as conversion

    with model_errors(), progress() as update:
        converted = conversion.convert(path, layout, out, was, update)
    if as_json:
        return print_json(vars(converted) | {"out": str(converted.out)})
    size = f"{converted.bytes / 2**20:,.1f} MiB"
    print(
        f"{converted.was} → {converted.now}:"
        f" the rows of {len(converted.moved)} of {converted.tensors} tensors are reordered"
    )
    print(f"the former layout was {converted.was!r}: {converted.by}")
    print(f"{converted.out} is written, {size}; the original model is unchanged.")
    for note in converted.notes:
        print(f"note: {note}")
