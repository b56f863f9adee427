"""`posenc inspect`, `posenc extend` and `posenc convert`: the files of real models."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from rich.console import Console

from posenc.commands.app import MODELS, command
from posenc.commands.errors import UsageError, of_models
from posenc.commands.options import NOWHERE, AsJson, Flag, Name, Output, Place, Tokens, print_json
from posenc.commands.progress import progress

if TYPE_CHECKING:
    from posenc.models.extend import Extension

ComputesIn = Literal["float32", "bfloat16"]


@command(
    MODELS,
    place=0,
    takes="MODEL [OTHER]",
    small=True,
    examples=(
        ("posenc inspect model/", "what the layers do, from config.json"),
        ("posenc inspect model/ --target 131072", "what breaks at that length, and what to do"),
        ("posenc inspect model/ --out page/ --figures svg", "a page, and its figures"),
        ("posenc inspect model/ other/", "in what two differ"),
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
    """Say what a model does about positions, layer by layer, and what would break in longer texts.

    Parameters
    ----------
    model
        A config.json, a model folder, or a file of weights; or the model's id on the Hugging Face
        hub, to fetch its config. No code of a model is run, and no pickle loaded.
    other
        A second one: say in what the two differ, and nothing else.
    target
        The length of text in question, in tokens: 131072, or 128k (k is 1,024, M is 1,048,576).
        Whether it fits, what would break and what to do about it, or what would have to be known
        to say so. The exit code is 0 for each answer.
    weights
        Read the weights too: tables, biases, the strength of each pair, and what they say of the
        layout. Safetensors and GGUF.
    """
    from posenc.models import inspection
    from posenc.models.files import hub

    with of_models():
        path = hub.local(model, weights)
    if other is not None:
        return _differences(path, other, output.json)
    output.prepare()
    with of_models(), progress() as say:
        if weights:
            say("reading weights", 0, 1)
        inspected = inspection.inspect(path, target, weights, "" if str(path) == model else model)
        output.write(inspected, say)
    output.show(inspected)


def _differences(path: Path, other: str, as_json: bool) -> None:
    """Print in what two models differ."""
    from posenc.models.check import differences
    from posenc.models.files import hub

    with of_models():
        found = differences.compare(path, second := hub.local(other))
    if as_json:
        return print_json({"differences": differences.to_json(found)})
    from posenc.show.report.terminal import checks

    checks.differences(found, (str(path), str(second)), Console())


@command(
    MODELS,
    place=2,
    examples=(
        ("posenc extend model/ --to 131072 --method yarn", "the old config is kept"),
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
    """Write a config for longer texts; the old one is kept beside it, or in place with --out.

    Say how long texts become, --to in tokens or --factor times what the model was trained on, and
    --trained where its config does not say that. Qwen3's own recipe is --factor 4 --trained 32768
    --method yarn. With --prove each way is tried on the model's own loss, and the best is written,
    if any is worth it.

    Parameters
    ----------
    path
        A config.json, or a model folder; with --prove a folder with weights, or a GGUF file, whose
        keys are then printed.
    to
        The length of text that it should serve, in tokens: 131072, or 128k (k is 1,024, M is
        1,048,576).
    method
        linear, ntk, dynamic, yarn, llama3, or base with --base; or table, where positions are
        learned rows: these are interpolated, and a copy of the model is written to --out. Then --to
        is the side in pixels, of a model of pictures.
    factor
        How many times longer texts become.
    trained
        The length that the model was trained on, in tokens, where that is not what its config
        says.
    base
        The new base, of method base; with --prove the larger base that is tried.
    prove
        Measure each way: loss by position, what comes back of a key and of a copy. The exit code is
        1 where the best is not worth it beside the last tokens alone; nothing is written then.
    text
        What the model reads, in UTF-8; by default, a novel.
    precision
        What the model computes in, with --prove: bfloat16 takes half of the memory of its weights,
        and less time where the processor multiplies in it.
    out
        A new folder for a copy of the model folder with the new config; the model as it was is
        left alone. With `prove` a folder for the page of the proof.
    part
        The config inside whose table is meant, with method table: vision_config, say, or decoder.
    as_json
        Print what changed as one JSON document.
    """
    from posenc.models import extend as extension

    if prove:
        page = Output(out)
        page.prepare()
        return _prove(path, to, method or factor, text, base, trained, precision, page, as_json)
    if text is not None or precision != "float32":
        raise UsageError("`--text` and `--precision` are for --prove.")
    if method == "table":
        return _resize(path, to, out, part, factor or trained or base, as_json)
    if part:
        raise UsageError("`--part` is for --method table.")
    if method is None:
        raise UsageError("`--method` is needed: how to stretch; or --prove, to try each way.")
    with of_models():
        extended = extension.extend(path, to, method, factor, trained, base, out)
    _say_extended(extended, as_json)


def _resize(
    path: Path, to: int | None, out: Path | None, part: str, other: object, as_json: bool
) -> None:
    """Write a copy of a model with a longer table."""
    from posenc.models.resize import resize

    if to is None or out is None or other is not None:
        raise UsageError("`--method table` takes --to and --out, and maybe --part, alone.")
    with of_models():
        resized = resize(path, to, out, part)
    if as_json:
        return print_json(vars(resized) | {"out": str(resized.out)})
    print(f"{resized.tensor}: {resized.before:,} → {resized.after:,} rows")
    print(f"{resized.key}: {json.dumps(resized.value)}")
    for note in resized.notes:
        print(f"note: {note}")
    print(f"{resized.out} is written; the model as it was is untouched. Train it on the new size.")


def _say_extended(extended: "Extension", as_json: bool, more: dict[str, Any] | None = None) -> None:
    """Print what was written, and how it is served."""
    if as_json:
        changes = [vars(change) for change in extended.changes]
        told = {"config": str(extended.config), "kept": str(extended.kept), "changes": changes}
        told |= {"notes": extended.notes, "folder": extended.folder}
        told |= {"serving": extended.serving, "cache": extended.cache}
        return print_json(told | (more or {}))
    for change in extended.changes:
        before = "nothing" if change.before is None else json.dumps(change.before)
        print(f"{change.key}: {before} → {json.dumps(change.after, ensure_ascii=False)}")
    for note in extended.notes:
        print(f"note: {note}")
    kept = extended.kept
    where = kept.name if kept.parent == extended.config.parent else str(kept)
    print(f"{extended.config} is written; the config as it was is kept as {where}.")
    print(f"keys and values of the longest text take {extended.cache / 2**30:,.2f} GiB in 16 bits")
    print("serve that folder:")
    for server, line in extended.folder.items():
        print(f"  {server}: {line}")
    print("or the model with its old config:")
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
    """Try each way to read longer texts, and write the best one, if any is worth it."""
    from posenc.analysis.text import letters_of
    from posenc.models import extend as extension
    from posenc.models.prove import prove
    from posenc.show.report.terminal import checks

    if to is None or other is not None:
        raise UsageError("`--prove` tries each method: give --to, and no --method or --factor.")
    with of_models(), progress() as say:
        proof = prove(path, to, letters_of(text) if text else None, base, trained, say, precision)
        page.write(proof, say)
    if not as_json:
        checks.proof(proof, Console())
        page.say_where(Console())
    if not proof.chosen:
        if as_json:
            print_json({"proof": proof.to_json()})
        raise SystemExit(1)
    if path.suffix == ".gguf":
        told = {"proof": proof.to_json(), "keys": proof.gguf_keys}
        return print_json(told) if as_json else checks.keys(proof.gguf_keys)
    with of_models():
        extended = extension.write(path, proof.ways[0].config, proof.notes, to)
    _say_extended(extended, as_json, {"proof": proof.to_json()})


@command(
    MODELS,
    place=3,
    small=True,
    examples=(("posenc convert model/ --layout interleaved --out other/", "bit for bit"),),
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
    """Write a copy of a model whose queries and keys pair their channels in the other layout.

    Parameters
    ----------
    path
        A model folder with a config.json and weights in safetensors; or a GGUF file, which becomes
        such a folder. What blocks of quantised numbers stand for is written in float32.
    layout
        Where the two channels of a pair are to sit: half a head apart, or side by side.
    out
        A new folder for the copy.
    was
        The layout that it has, where its weights do not show it; else it is as its config says.
    as_json
        Print what was done as one JSON document.
    """
    from posenc.models import convert as conversion

    with of_models(), progress() as say:
        converted = conversion.convert(path, layout, out, was, say)
    if as_json:
        return print_json(vars(converted) | {"out": str(converted.out)})
    size = f"{converted.bytes / 2**20:,.1f} MiB"
    print(
        f"{converted.was} → {converted.now}:"
        f" {len(converted.moved)} of {converted.tensors} tensors moved"
    )
    print(f"it was in layout {converted.was!r}: {converted.by}")
    print(f"{converted.out} is written, {size}; the model as it was is untouched.")
    for note in converted.notes:
        print(f"note: {note}")
