"""Compare posenc's reading of configs with every model of the installed transformers.

    python tests/models/config/understood.py [--json] [model_type …]

The default config of each `model_type`, as JSON, is specified and compared with the model itself,
which is built on the meta device and run on four tokens: which layers attend, which are rotated, by
what angles, which channels, the windows; rows of tables, slopes, buckets. It is also compared with
the specification of a file that states no defaults.
"""

import importlib.util
import inspect
import json
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor
from transformers import CONFIG_MAPPING

from posenc import ALiBi
from posenc.models.config import families, specify
from posenc.models.config.families import Family
from posenc.models.config.spec import (
    Buckets,
    Disentangled,
    Layer,
    PatchBias,
    PatchNetwork,
    PatchRotary,
    Rotary,
    Slopes,
    Spec,
    Table,
    Waves,
)
from posenc.models.files.errors import ModelError, Unread

KNOWS = re.compile(
    r"(^|[._])(pos|position|positional|relative|rotary|rope|inv_freq|alibi|wpe)([._]|$)"
)
DEPTH = 13  # layers of a running model, if the class builds this many by default


def _script(name: str) -> ModuleType:
    """Import a script of tools/."""
    if name not in sys.modules:
        path = Path(__file__).parents[3] / "tools" / f"{name}.py"
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec
        assert spec.loader
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


watched = _script("watched")
_script("switches")  # tools/families.py imports it by this name


@dataclass(frozen=True)
class Result:
    model_type: str
    folder: str
    outcome: str  # "equal", "refused", "none needed", or a description of errors
    why: str = ""  # reason for "refused"


def models() -> list[str]:
    return sorted(CONFIG_MAPPING.keys())


def result(model_type: str) -> Result:
    """Compare the reading of one model's default config with the model."""
    known = families.family(model_type)
    if known is None:
        return Result(model_type, "", "not in families.json")
    if known.refused:
        try:
            specify({"model_type": model_type})
        except ModelError as error:
            right = model_type in str(error)
            return Result(
                model_type, known.folder, "refused" if right else str(error), known.refused
            )
        return Result(model_type, known.folder, "is supported, but listed as refused")
    try:
        wrong = "; ".join(differences(model_type, known))
    except Unread as error:  # all of its parts are unsupported
        return Result(model_type, known.folder, "refused", str(error).partition(": ")[2])
    except Exception as error:  # an error in one model must not hide the others
        wrong = f"cannot be compared: {type(error).__name__}: {error}"
    done = "none needed" if known.kind in ("nothing", "given") else "equal"
    return Result(model_type, known.folder, wrong or done)


def variant(model_type: str, values: dict[str, Any]) -> str:
    """Compare the reading of a config with other than default values."""
    config = watched.config(
        model_type, **json.loads(json.dumps(values))
    )  # the class changes its argument
    file = json.loads(json.dumps(config.to_dict(), default=str))
    known = families.family(model_type)
    assert known
    spec, alike = specify(file), specify({"model_type": model_type, **values})
    wrong = [] if spec == alike else [f"{_unlike(spec, alike)} as it was given"]
    return "; ".join([*wrong, *of_stacks(model_type, config, known, spec)])


def _unlike(one: Spec, other: Spec) -> str:
    """Return the name of the first field in which two specifications differ."""
    for name in vars(one):
        a, b = getattr(one, name), getattr(other, name)
        if name not in ("notes", "model") and a != b:
            if isinstance(a, tuple) and len(a) == len(b):
                a, b = next((x, y) for x, y in zip(a, b, strict=True) if x != y)
            return f"{name}: {a} instead of {b}"
    return ""


def given(model_type: str, few: bool = True) -> tuple[Any, dict[str, Any]]:
    """Return a config, with few layers if possible, and its values as JSON."""
    mended = watched.MENDED.get(model_type, {})
    fixed = {"layer_types", "num_hidden_layers"} & set(mended)
    name = families.family(model_type).keys.get("num_hidden_layers", "num_hidden_layers")  # type: ignore[union-attr]
    try:
        config = watched.config(model_type, **({name: DEPTH} if few and not fixed else {}))
        if len(getattr(config, "layer_types", None) or [0] * DEPTH) != DEPTH:
            config = watched.config(model_type)
    except Exception:
        config = watched.config(model_type)
    return config, json.loads(json.dumps(config.to_dict(), default=str))


def differences(model_type: str, known: Family) -> Iterator[str]:
    """Yield a sentence for each difference from the model."""
    if known.kind == "parts":
        yield from _of_parts(model_type)
        return
    if known.kind == "nothing":
        yield from _of_none(watched.config(model_type))
        return
    if known.kind == "given":
        yield from _of_given(watched.config(model_type))
        return
    config, file = given(model_type)
    if known.kind == "rotary" and not _ran(config):
        config, file = given(model_type, few=False)
    try:
        spec = specify(file)
    except Unread:
        raise
    except ModelError as error:
        yield f"not read: {error}"
        return
    if spec.kind == known.kind == "none":
        yield from _of_none(watched.config(model_type))
    if model_type not in watched.MENDED and not known.parts:
        alone = specify({"model_type": model_type, **_depth(known, file)})
        if _unlike(spec, alone):
            yield f"{_unlike(spec, alone)} by default"
    yield from of_stacks(model_type, config, known, spec)


def of_stacks(model_type: str, config: Any, known: Family, spec: Spec) -> Iterator[str]:
    """Yield the differences of a parsed config, of its encoder and decoder or of the whole."""
    stacks = spec.parts if known.stacks else {"": spec}
    for name in known.stacks or ("",):
        yield from _of_stack(model_type, config, known, name, stacks[name])


def _depth(known: Family, file: dict[str, Any]) -> dict[str, Any]:
    name = known.keys.get("num_hidden_layers", "num_hidden_layers")
    return {name: file[name]} if name in file else {}


_last: list[Any] = [None, None]


def _ran(config: Any) -> Any:
    """Run the model of a config; return None if it does not run on four tokens."""
    if _last[0] is not config:
        _last[:] = config, None
        with suppress(Exception):
            _last[1] = watched.run(config)
    return _last[1]


def _of_parts(model_type: str) -> Iterator[str]:
    """Check that the whole of a model with parts can be read; parts are tested as models."""
    try:
        config = json.loads(json.dumps(_mended(model_type).to_dict(), default=str))
    except Exception:
        config = {"model_type": model_type}
    try:
        specify(config)
    except Unread:
        raise
    except ModelError as error:
        yield f"not read: {error}"


def _of_stack(model_type: str, config: Any, known: Family, name: str, spec: Spec) -> Iterator[str]:
    match spec.embedding:
        case Table():
            yield from _of_table(config, name, spec.embedding)
        case Waves():
            yield from _of_waves(config, name, spec.embedding)
    kinds = {type(layer.encoding) for layer in spec.layers} - {type(None)}
    if Rotary in kinds or spec.kind == "rotary":
        yield from _of_rotary(model_type, config, known, spec)
    if Slopes in kinds:
        yield from _of_slopes(model_type, config, spec)
    if Buckets in kinds:
        yield from _of_buckets(config, name, spec)
    if Disentangled in kinds:
        yield from _of_disentangled(config, spec)
    if {PatchBias, PatchNetwork} & kinds:
        yield from _of_windows(config, spec)
    # Other towers are compared in test_vision.py
    if any(isinstance(x.encoding, PatchRotary) and x.encoding.scaled for x in spec.layers):
        yield from _of_pictured(config, spec)
    seen = _ran(config)
    if name:
        yield from _of_depth(seen.model if seen else watched.built(config), name, spec)
    if seen:
        yield from _of_layers(name, seen, spec)


def _of_none(config: Any) -> Iterator[str]:
    """Check that a model without an encoding has no positions."""
    if watched.inner(config):
        return
    try:
        model = watched.built(config)
    except (ImportError, LookupError):
        return
    found = [n for n, p in _named(model) if p.is_floating_point() and KNOWS.search(n)]
    if found:
        yield f"it has {found[0]}"
    if (seen := _ran(config)) and seen.main:
        yield "it turns queries"


def _of_given(config: Any) -> Iterator[str]:
    """Check that a model has no positions of its own, and an argument for those of another part."""
    own = type(config).__name__.removesuffix("Config").lower()
    kind = next(kind for name, kind in _classes(config).items() if name.lower() == own)
    with torch.device("meta"):
        model = kind(config)
    found = [n for n, p in _named(model) if p.is_floating_point() and KNOWS.search(n)]
    if found:
        yield f"it has {found[0]}"
    if not any("pos" in name for name in inspect.signature(model.forward).parameters):
        yield "no argument of its call has positions"


def _mended(model_type: str) -> Any:
    config = watched.config(model_type)
    inner = {key: getattr(config, key).model_type for key in watched.inner(config)}
    inner = {key: name for key, name in inner.items() if name in CONFIG_MAPPING}
    mended = {key: watched.MENDED[name] for key, name in inner.items() if name in watched.MENDED}
    deeper = {
        key: _mended(name) for key, name in inner.items() if watched.inner(getattr(config, key))
    }
    return watched.config(model_type, **mended, **deeper)


def _of_pictured(config: Any, spec: Spec) -> Iterator[str]:
    """Compare DINOv3, whose table follows from the size of an image: 3 × 5 patches."""
    from posenc.core.positions import centred

    owner = next(m for m in _classes(config) if re.search(r"(RopePosition|Rotary)Embedding$", m))
    table = _classes(config)[owner](config).eval()
    cos, sin = table(torch.zeros(1, 3, 3 * config.patch_size, 5 * config.patch_size))
    for layer in spec.layers:
        turn = layer.build().prepare(centred(3, 5))  # type: ignore[attr-defined]
        for made, true in ((turn.cos, cos), (turn.sin, sin)):
            if not torch.allclose(torch.cat((made, made), -1).squeeze(), true, atol=1e-5):
                yield "angles differ"


def _classes(config: Any) -> dict[str, Any]:
    """Return the classes in the files of a config's models, by name."""
    every = [vars(module) for module in watched.modules(type(config))]
    return {name: kind for one in every for name, kind in one.items() if isinstance(kind, type)}


# ---------------------------------------------------------------------------------------- layers


def _of_depth(model: torch.nn.Module, name: str, spec: Spec) -> Iterator[str]:
    """Compare the number of layers of an encoder or a decoder, also if the model does not run."""
    layers = re.compile(rf"(?:(?:en|de)coder\.)?{name}\.(?:(?:conformer_)?layers|block)\.\d+")
    depth = sum(bool(layers.fullmatch(path)) for path, _ in model.named_modules())
    if depth != len(spec.layers):
        yield f"its {name} has {depth} layers, not {len(spec.layers)}"


CROSS = re.compile(r"cross|encoder_attn|EncDecAttention")


def _of_layers(name: str, seen: Any, spec: Spec) -> Iterator[str]:
    """Compare the attending layers and their windows."""
    calls = {
        call.layer: call
        for call in seen.attended
        if not CROSS.search(call.where) and (not name or call.where.startswith(f"{name}."))
    }
    attends = {n for n, layer in enumerate(spec.layers) if layer.attends}
    if calls and set(calls) != attends:
        yield f"layers {sorted(set(calls) ^ attends)} attend in one and not in the other"
    for layer in sorted(attends & set(calls)):
        said, call = spec.layers[layer], calls[layer]
        ahead = 0 if said.causal else said.window and said.window - 1
        if call.sees and said.unsupported:  # not only a window
            ahead = call.sees[1]
        if call.sees and call.sees != (said.window, ahead):
            yield f"layer {layer} sees {call.sees} tokens back and ahead, not {said.window, ahead}"
            return
        if wrong := _of_attention(spec.model, said, call):
            yield f"layer {layer} {wrong}"
            return


BEFORE = (
    "esm",
    "kosmos_2_5_text_model",
    "openai_privacy_filter",
    "opt",
)  # they scale queries first


def _of_attention(model: str, said: Layer, true: Any) -> str:
    """Compare the direction of attention, the softmax scale, the softcap and sinks."""
    if true.sees and said.causal != (true.sees[1] == 0):
        return f"is{'' if true.sees[1] == 0 else ' not'} causal"
    gain = said.encoding.logit_gain if isinstance(said.encoding, Rotary) else 1.0
    usual = true.query[-1] ** -0.5 * gain
    scale = usual if said.scale is None else said.scale
    if true.scale is not None and model not in BEFORE and not _near(true.scale, scale):
        return f"scales by {true.scale:.6f}, not {scale:.6f}"
    if (said.softcap, said.sinks) != (true.softcap, true.sinks):
        return f"has softcap {true.softcap} and sinks {true.sinks}"
    return ""


# ---------------------------------------------------------------------------------------- rotary


def _of_rotary(model_type: str, config: Any, known: Family, spec: Spec) -> Iterator[str]:
    seen = _ran(config)
    if seen and seen.main:
        calls = {call.layer: call for call in reversed(seen.main)}
    else:  # the model does not run on empty weights, so only its function and table are compared
        seen, calls = watched.Trace(torch.nn.Module(), config), {}
        for layer, one in enumerate(spec.layers):
            if isinstance(one.encoding, Rotary):
                lone = (
                    _roformer(config)
                    if model_type == "roformer"
                    else watched.alone(config, known.labels.get(one.kind, one.kind))
                )
                seen, calls[layer] = lone
    turns = {n for n, layer in enumerate(spec.layers) if isinstance(layer.encoding, Rotary)}
    if set(calls) != turns:
        yield f"layers {sorted(set(calls) ^ turns)} turn in one and not in the other"
    queries = {at.layer: at for at in seen.attended}
    compared: set[Any] = set()
    for layer in sorted(turns & set(calls)):
        said, call = spec.layers[layer].encoding, calls[layer]
        at = queries.get(layer)
        if (said, at and at.query) in compared:
            continue
        compared.add((said, at and at.query))
        assert isinstance(said, Rotary)
        done = watched.rotation(seen, call)
        yield from _of_rotation(layer, said, done, at, watched.after(call))
        if said.sections:
            yield from _of_axes(config, said, done)


def _of_rotation(layer: int, said: Rotary, done: Any, at: Any, after: bool) -> Iterator[str]:
    alone = (
        not at and done.dim == said.turned < said.dim
    )  # the other channels of the head were removed before
    dim = at.query[-1] if at else said.dim if alone else done.dim
    plain = said.method == "default"  # others lose a few bits, in float32
    theta = said.frequencies(length=watched.TOKENS)
    theta = theta.sum(0) if theta.ndim == 2 else theta  # in text all axes count alike
    theta = theta[theta != 0]
    if said.dim != dim:
        yield f"heads of layer {layer} have {dim} channels, not {said.dim}"
    if len(theta) != len(done.theta):
        yield f"{2 * len(done.theta)} channels turn in layer {layer}, not {2 * len(theta)}"
    elif not torch.allclose(theta, done.theta, rtol=1e-6 if plain else 5e-6, atol=1e-12):
        off = ((theta - done.theta) / theta).abs().max()
        yield f"angles of layer {layer} are off by {off:.1e}"
    if not abs(said.gain - done.gain) < 1e-6 * done.gain:
        yield f"rotations of layer {layer} scale by {done.gain:.6f}, not {said.gain:.6f}"
    if said.layout != done.layout:
        yield f"the layout of layer {layer} is {done.layout}, not {said.layout}"
    last = done.place == "trailing" or (done.dim < dim and after)
    if said.trailing != last:
        yield f"layer {layer} turns the {'last' if last else 'first'} channels"


def _of_axes(config: Any, said: Rotary, done: Any) -> Iterator[str]:
    """Compare the axis of each pair, using angles for one axis at a time."""
    table, more = watched.table_of(config)
    theta = said.frequencies(length=watched.TOKENS)
    for axis in range(len(theta)):
        pos = torch.zeros(len(theta), 1, watched.TOKENS, dtype=torch.long)
        pos[axis] = torch.arange(watched.TOKENS)
        cos, sin = table(torch.zeros(1, watched.TOKENS, 8), position_ids=pos, **more)
        true = torch.atan2(sin, cos).squeeze()[1].double()[[a for a, _ in done.pairs]]
        if not torch.allclose(theta[axis], true, rtol=1e-5, atol=1e-9):
            yield f"the pairs of axis {axis} differ"


def _near(a: float, b: float) -> bool:
    return abs(a - b) < 1e-6 * abs(b)


def _roformer(config: Any) -> tuple[Any, Any]:
    """RoFormer's rotation is a method with a table of sines, then cosines."""
    from transformers.models.roformer import modeling_roformer as m

    dim = config.hidden_size // config.num_attention_heads
    table = m.RoFormerSinusoidalPositionalEmbedding(watched.TOKENS, dim)
    table.weight = torch.nn.Parameter(table.create_weight(), requires_grad=False)
    sines = table((1, watched.TOKENS), 0)[None, None]

    def turn(query: Tensor, key: Tensor) -> Tensor:
        act = m.RoFormerSelfAttention.apply_rotary_position_embeddings
        return act(sines.expand(len(query), -1, -1, -1), query, key)[0]

    x = torch.zeros(1, 2, watched.TOKENS, dim, device="meta")
    call = watched.Turned(-1, "", turn, {"query": x, "key": x})
    return watched.Trace(torch.nn.Module(), config), call


# -------------------------------------------------------------------------------- added to tokens


def _of_table(config: Any, name: str, said: Table) -> Iterator[str]:
    shapes = [tuple(table.shape[-2:]) for table in _tables(config, name)]
    if (rows := said.rows + said.offset, said.width) not in shapes:
        yield f"its {name} table has {shapes}, not {rows} rows of {said.width}"


def _named(model: torch.nn.Module) -> list[tuple[str, Tensor]]:
    return [*model.named_parameters(), *model.named_buffers()]


def _tables(config: Any, name: str) -> Iterator[Tensor]:
    wanted = _script("families").NAMES
    for path, tensor in _named(watched.built(config)):
        if wanted.search(path) and tensor.ndim in (2, 3) and name in path and "_ids" not in path:
            yield tensor


def _of_waves(config: Any, name: str, said: Waves) -> Iterator[str]:
    rows = said.encoding().prepare(torch.arange(said.offset, said.offset + 40)).rows
    true = _script("families").fixed(config, said.width, said.offset + 40)[said.offset :]
    off = (rows - true).abs().max()
    if off > 1e-4:
        yield f"its {name} waves are off by {off:.1e}"


# ----------------------------------------------------------------------------------------- biases


def _of_slopes(model_type: str, config: Any, spec: Spec) -> Iterator[str]:
    said = spec.layers[0].encoding
    assert isinstance(said, Slopes)
    made, near = ALiBi(said.heads).slopes.float(), 1e-6
    heads, ones = spec.heads, torch.ones(1, 2, dtype=torch.long)
    if model_type == "mpt":
        from transformers.models.mpt.modeling_mpt import build_mpt_alibi_tensor as build

        true = build(heads, 2)[:, 0].diff(dim=-1).flatten()
    elif model_type == "bloom":
        from transformers.models.bloom.modeling_bloom import build_alibi_tensor

        true = build_alibi_tensor(ones, heads, torch.float32)[:, 0, 1]
    else:
        from transformers.models.falcon.modeling_falcon import build_alibi_tensor

        true, near = build_alibi_tensor(ones, heads, torch.float32)[:, 0, 1], 2**-8  # in bfloat16
        if not _near(said.strength, (config.hidden_size // heads) ** -0.5):
            yield f"its slopes are divided by √channels, not multiplied by {said.strength}"
    if not torch.allclose(made, true, rtol=near):
        yield "its slopes differ"


def _of_buckets(config: Any, name: str, spec: Spec) -> Iterator[str]:
    from posenc.encodings.bias.t5 import bucket

    said = spec.layers[0].encoding
    assert isinstance(said, Buckets)
    offsets = torch.arange(-300, 301)
    made = bucket(offsets, said.buckets, said.reach, said.bidirectional)
    model = watched.built(config)
    own: Any = next(
        part
        for path, part in model.named_modules()
        if (hasattr(part, "_relative_position_bucket") or config.model_type == "mpnet")
        and (name in path and hasattr(part, "relative_attention_bias"))
    )
    both = not getattr(
        own, "is_decoder", True
    )  # Pix2Struct's text model is a decoder without this flag
    if type(own).__name__.startswith("UMT5"):
        true = own._relative_position_bucket(-offsets)
    elif config.model_type == "mpnet":
        true = own.relative_position_bucket(-offsets)  # of keys from queries
    else:
        count, reach = config.relative_attention_num_buckets, config.relative_attention_max_distance
        true = own._relative_position_bucket(-offsets, both, count, reach)
    if not torch.equal(made, true):
        yield f"the buckets of its {name} differ"
    if said.heads != config.num_attention_heads:
        yield f"it has {config.num_attention_heads} heads, not {said.heads}"


def _of_disentangled(config: Any, spec: Spec) -> Iterator[str]:
    said = spec.layers[0].encoding
    assert isinstance(said, Disentangled)
    rows = watched.built(config).get_submodule("encoder.rel_embeddings").weight.shape[0]
    if rows != 2 * (said.buckets or said.reach):
        yield f"it has {rows} rows of distances, not {2 * (said.buckets or said.reach)}"


def _of_windows(config: Any, spec: Spec) -> Iterator[str]:
    """Compare heads and offsets of Swin's and BEiT's biases with the sizes in each module."""
    found = []
    for part in watched.built(config).modules():
        if hasattr(part, "relative_position_bias_table"):
            found.append(tuple(part.relative_position_bias_table.shape))
        elif hasattr(part, "continuous_position_bias_mlp"):
            sides = part.relative_coords_table.shape[1:3]
            found.append((int(sides.numel()), part.num_attention_heads))
    made = []
    for layer in spec.layers:
        rows, columns = (2 * side - 1 for side in layer.encoding.size)  # type: ignore[union-attr]
        more = 3 * getattr(layer.encoding, "class_token", False)
        made.append((rows * columns + more, layer.encoding.heads))  # type: ignore[union-attr]
    shared = getattr(spec.layers[0].encoding, "shared", False)
    if found != (made[:1] if shared else made):
        yield f"its biases have the sizes {found}, not {made}"


# --------------------------------------------------------------------------------------- counting


def count(results: list[Result]) -> dict[str, list[str]]:
    """Count folders of transformers by the result of their models."""
    folders: dict[str, set[str]] = defaultdict(set)
    for one in results:
        folders[one.folder].add(one.outcome)
    sorts: dict[str, list[str]] = defaultdict(list)
    for folder, outcomes in sorted(folders.items()):
        if outcomes - {"equal", "refused", "none needed"}:
            sorts["wrong"].append(folder)
        elif outcomes == {"none needed"}:
            sorts["no encoding"].append(folder)
        elif "equal" in outcomes and "refused" in outcomes:
            sorts["supported and equal in part"].append(folder)
        elif "equal" in outcomes:
            sorts["supported and equal"].append(folder)
        else:
            sorts["refused by name"].append(folder)
    return sorts


def table(results: list[Result]) -> str:
    by = count(results)
    total = sum(map(len, by.values()))
    lines = [f"{total} folders, {len(results)} model types"]
    lines += [f"{len(by[sort]):5} {sort}" for sort in sorted(by, key=lambda s: -len(by[s]))]
    reasons: dict[str, list[str]] = defaultdict(list)
    for one in results:
        if one.outcome == "refused":
            reasons[one.why].append(one.model_type)
    lines += ["", "refused, because"]
    for why, names in sorted(reasons.items(), key=lambda item: -len(item[1])):
        lines.append(f"{len(names):5} {why}: {' '.join(names)}")
    wrong = [one for one in results if one.outcome not in ("equal", "refused", "none needed")]
    lines += ["", *(f"WRONG {one.model_type}: {one.outcome}" for one in wrong)]
    return "\n".join(lines)


def in_second_python(script: str, *options: str) -> list[dict[str, Any]]:
    """Run a script with --json, without the shape checker, which makes it 4× slower."""
    file = Path(__file__).with_name(script)
    asked = subprocess.run(
        [sys.executable, "-P", str(file), "--json", *options], capture_output=True, text=True
    )
    assert asked.returncode == 0, asked.stderr
    return [json.loads(line) for line in asked.stdout.splitlines()]


def main() -> None:
    watched.quiet()
    names = [name for name in sys.argv[1:] if name != "--json"] or models()
    if "--json" in sys.argv:
        for model_type in names:
            print(json.dumps(vars(result(model_type))), flush=True)
    else:
        print(table([result(model_type) for model_type in names]))


if __name__ == "__main__":
    main()
