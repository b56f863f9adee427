"""Write families.json, facts about models, from the installed transformers; --check compares.

    python tools/families.py [--check] [model_type …]   # by default all models, which takes minutes

Names and defaults of keys, layout, place and direction of rotations, sizes and forms of tables, and
keys that are ignored are found by making each model without values and watching it on four tokens.
Other facts are in by_hand.toml, or in the file of the family.
tests/models/config/test_understood.py compares both with the models themselves.
"""

import inspect
import json
import math
import re
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import MISSING, fields
from itertools import product
from pathlib import Path
from typing import Any

import switches
import torch
import watched
from torch import Tensor, nn
from transformers import CONFIG_MAPPING
from transformers.configuration_utils import PreTrainedConfig

from posenc.models.config import families

ROOM = Path(__file__).parent.parent / "src/posenc/models/config/families"
FIELDS = [field.name for field in fields(families.Family)]  # in this order
MOST_LAYERS = 8  # of models that are run to see what a key changes
USUAL = (
    "hidden_size num_hidden_layers num_attention_heads num_key_value_heads head_dim"
    " max_position_embeddings"
).split()
POSITIONAL = (
    *USUAL,
    *"rotary_dim qk_rope_head_dim qk_nope_head_dim sliding_window use_sliding_window"
    " max_window_layers attention_chunk_size local_attention layer_types no_rope_layers"
    " no_rope_layer_interval relative_attention relative_attention_num_buckets"
    " relative_attention_max_distance max_relative_positions position_biased_input pos_att_type"
    " position_buckets position_embedding_type alibi rope_interleave rope_theta rotary_value"
    " partial_rotary_factor original_max_position_embeddings pad_token_id"
    " attn_temperature_tuning floor_scale attn_scale image_size patch_size num_channels"
    " max_source_positions max_target_positions embedding_size input_embedding_size"
    " query_pre_attn_scalar attention_multiplier attn_logit_softcapping position_embeddings_type"
    " attn_type embed_dim spatial_merge_size window_size fullatt_block_indexes"
    " num_position_embeddings pos_emb_height pos_emb_width posemb_grid_size pretrain_image_size"
    " max_image_size num_patches n_cls_tokens max_img_size num_windows window_block_indices"
    " interpolate_mode num_mel_bins max_length frequency_stride time_stride is_native"
    " use_absolute_position_embeddings use_relative_position_embeddings fpn_hidden_size use_abs_pos"
    " use_rel_pos global_attn_indexes num_conv_pos_embeddings num_conv_pos_embedding_groups"
    " conv_pos_kernel_size depths pretrained_window_sizes use_absolute_embeddings"
    " use_relative_position_bias use_shared_relative_position_bias use_positional_embedding"
    " min_timescale max_timescale spec_size patch_stride".split(),
)


def line(model_type: str) -> dict[str, Any]:
    """Return the facts about a model type that can be read from transformers."""
    kind, hand = CONFIG_MAPPING[model_type], families.by_hand(model_type)
    made: dict[str, Any] = {"folder": kind.__module__.split(".")[-2]}
    if "parts" in hand:
        return made | {"inner": inner(model_type, hand["parts"])}
    if hand.get("kind") in ("refused", "nothing", "given"):
        return made
    config = watched.config(model_type)
    made["parts"] = parts(model_type)
    own = "num_hidden_layers" in vars(config) or "kind" in hand
    if watched.inner(config) and not own and "rope_parameters" not in vars(config):
        made["parts"] = made["parts"] or list(watched.inner(config))
        made |= {"kind": "parts", "flat": flat(model_type)}
        return made | {"inner": inner(model_type, made["parts"])}
    made["inner"] = inner(model_type, made["parts"])
    made["keys"] = keys(kind, config)
    names = made["keys"] | hand.get("keys", {})
    made["defaults"] = defaults(model_type, names)
    rotary = hand.get("kind", "rotary") == "rotary" and "rope_parameters" in vars(config)
    if rotary or hand.get("kind") == "rotary":
        made |= {"kind": "rotary", "rope": labelled(model_type)}
        if "layout" not in hand:
            made |= turning(model_type)
    elif "kind" not in hand:
        made |= added(model_type, config, names)
    made["ignored"] = ignored(model_type, families.merged(made, {**hand, "ignored": ()}))
    if "rotary_dim" in made["ignored"]:
        made["defaults"].pop("rotary_dim", None)
    stacks = families.merged(made, hand).get("stacks", {})
    if stacks:
        made.setdefault("stacks", {})
    stated = {field.name: field.default for field in fields(kind)}
    for name, stack in stacks.items():
        own = {usual: stated.get(key) for usual, key in stack.get("keys", {}).items()}
        own = {usual: value for usual, value in own.items() if value not in (None, MISSING)}
        made["stacks"].setdefault(name, {})["defaults"] = own
    return made


BASES = ("rope_theta", "rope_local_base_freq", "global_rope_theta", "local_rope_theta")


def labelled(model_type: str) -> dict[str, dict[str, Any]]:
    """Return, per type of layer, the config key of the RoPE base, and whether scaling applies.

    They are the old key of its base, and whether an old `rope_scaling` applies to it, as found by
    building the config class.
    """
    kind: Any = CONFIG_MAPPING[model_type]

    def settings(**values: Any) -> dict[str, Any]:
        with suppress(Exception):  # the class does not accept these keys
            return vars(kind(**values)).get("rope_parameters") or {}
        return {}

    labels = [label for label, own in settings().items() if isinstance(own, dict)]
    based = {key: settings(**{key: 54_321.0}) for key in BASES} if labels else {}
    scaled = settings(rope_scaling={"rope_type": "linear", "factor": 8.0}) if labels else {}
    found = {}
    for label in labels:
        heeded = [k for k in BASES if based[k].get(label, {}).get("rope_theta") == 54_321.0]
        factor = scaled.get(label, {}).get("factor")
        found[label] = {"theta": next(iter(heeded), ""), "scaled": factor == 8.0}
    return found


SHARE = "partial_rotary_factor"


def ignored(model_type: str, made: Mapping[str, Any]) -> list[str]:
    """Return the config keys that other models read but this one ignores."""
    kind: Any = CONFIG_MAPPING[model_type]
    named = made.get("keys", {})
    code = "".join(inspect.getsource(module) for module in watched.modules(kind))
    usually = vars(kind()).get("rope_parameters")

    def moves(key: str, value: float) -> bool:
        """Test whether a key changes the rope settings; also true if the class rejects the key."""
        with suppress(Exception):
            return vars(kind(**{key: value})).get("rope_parameters") != usually
        return True

    found = []
    if made.get("kind") == "rotary":
        for usual, value in (("rope_theta", 50_000.0), (SHARE, 0.4375)):
            keys = {usual, named.get(usual, usual)}
            heeded = usual in code and any(moves(key, value) for key in keys)
            heeded |= any(f"config.{key}" in code for key in keys)
            found += [] if heeded else [usual]
        own = inspect.getsource(sys.modules[kind.__module__])
        stated = "config.rotary_dim" in code or "rotary_dim" in own
        if not stated or not _moves(model_type, made, [{"rotary_dim": 16}]):
            found.append("rotary_dim")
        found += [] if "rope_parameters" in vars(kind()) else ["rope_scaling"]
        found += [] if SHARE in code else [f"rope_parameters.{SHARE}"]
        if "head_dim" not in named and _computed(kind, "head_dim", 48):
            found.append("head_dim")
    typed = re.search("layer_type|block_type", code) or model_type == "mistral"
    if made.get("kind") in ("rotary", "none") and not typed:
        found.append("layer_types")  # AutoConfig makes of a Mistral that lists them a Ministral
    if not ("sliding" in code and _slides(model_type, made)):
        found.append("sliding_window")
    return found


def _computed(kind: type[PreTrainedConfig], key: str, value: Any) -> bool:
    """Test whether a config class computes a key and ignores this value for it."""
    with suppress(Exception):
        return key in vars(kind()) and vars(kind(**{key: value}))[key] == vars(kind())[key] != value
    return False


def _slides(model_type: str, made: Mapping[str, Any]) -> bool:
    """Test whether the keys of a sliding window have an effect on this model."""
    windows = {"sliding_window": 3, "use_sliding_window": True, "max_window_layers": 0}
    tried = [windows]
    if "layer_types" in switches.stated(model_type):
        count = watched.config(model_type, **_few(model_type, made)).num_hidden_layers
        tried.append({**windows, "layer_types": ["sliding_attention"] * count})
    return _moves(model_type, made, tried)


def _moves(model_type: str, made: Mapping[str, Any], tried: list[dict[str, Any]]) -> bool:
    """Test whether one of these config values changes what a model of few layers does.

    One that cannot be built or watched does.
    """
    few = _few(model_type, made)
    with suppress(Exception):
        plain = watched.behaviour(watched.config(model_type, **few))
        seen = any(call[-1] for call in plain["attended"])
        for values in tried:
            other = watched.behaviour(watched.config(model_type, **{**few, **values}))
            if other != plain:
                return True
        return not seen
    return True


def _few(model_type: str, made: Mapping[str, Any]) -> dict[str, Any]:
    """Return the config value that sets few layers, or {} if the class does not allow it."""
    name = made.get("keys", {}).get("num_hidden_layers", "num_hidden_layers")
    mended = watched.MENDED.get(model_type, {})
    if any(isinstance(value, list) for value in mended.values()) or "num_hidden_layers" in mended:
        return {}
    try:
        config = watched.config(model_type, **{name: MOST_LAYERS})
        types = getattr(config, "layer_types", None)
        return {name: MOST_LAYERS} if types is None or len(types) == MOST_LAYERS else {}
    except Exception:
        return {}


def parts(model_type: str) -> list[str]:
    """Return the keys of nested configs whose models encode positions, in the default config."""
    config = watched.config(model_type)
    inner = {key: getattr(config, key).model_type for key in watched.inner(config)}
    return [
        key
        for key, name in inner.items()
        if name in CONFIG_MAPPING and families.by_hand(name).get("kind") not in ("nothing", "given")
    ]


def inner(model_type: str, names: list[str]) -> dict[str, dict[str, Any]]:
    """Return the model type, and other facts, that a class assumes for each nested config."""
    kind: Any = CONFIG_MAPPING[model_type]

    def made(name: str, **values: Any) -> Any:
        for given in ({name: values}, {}):
            with suppress(Exception):  # the class cannot take it so
                return getattr(kind(**given), name)
        return None

    found: dict[str, dict[str, Any]] = {}
    for name in names:
        part = made(name)
        if part is None or part.model_type not in CONFIG_MAPPING:
            continue
        if not _accepts(kind, {name: {}}):
            # A part that the file states has the defaults of its own class
            part = made(name, model_type=part.model_type)
        other = "bert" if part.model_type != "bert" else "gpt2"
        fixed = type(made(name, model_type=other)) is type(part)
        found[name] = {"model_type": part.model_type} | ({"fixed": True} if fixed else {})
        with suppress(Exception):  # its class has no defaults that fit each other
            own = type(part)()
            values = {key: getattr(part, key, None) for key in (*USUAL, "sliding_window")}
            values["rope_parameters"] = getattr(part, "rope_parameters", None)
            differ = {k: v for k, v in values.items() if v != getattr(own, k, None)}
            stated = getattr(kind.sub_configs_defaults.get(name), "init_kwargs", {})
            differ |= {k: v for k, v in stated.items() if differ and k in USUAL}
            found[name] |= {"defaults": differ} if differ else {}
    return found


def _accepts(kind: Any, values: dict[str, Any]) -> bool:
    """Test whether a config class accepts these values."""
    with suppress(Exception):
        kind(**values)
        return True
    return False


def flat(model_type: str) -> str:
    """Return the model type of the nested text model that top-level keys configure, or ""."""
    kind: Any = CONFIG_MAPPING[model_type]
    with suppress(Exception):  # it has no text model, or several
        usual = kind().get_text_config()
        deeper = kind(num_hidden_layers=usual.num_hidden_layers + 1).get_text_config()
        inside = type(deeper) is not kind
        if inside and deeper.num_hidden_layers > usual.num_hidden_layers:
            return deeper.model_type
    return ""


def keys(kind: type[PreTrainedConfig], config: PreTrainedConfig) -> dict[str, str]:
    """Map standard config keys to this model's keys, where they differ."""
    found = {k: v for k, v in kind.attribute_map.items() if k in POSITIONAL}
    for usual, others in {
        "max_position_embeddings": ("max_seq_len", "n_positions", "max_sequence_length"),
        "num_hidden_layers": ("num_layers", "n_layers", "n_layer", "depth"),
        "num_attention_heads": ("num_heads", "n_heads", "n_head"),
    }.items():
        for other in others:
            if usual not in found and other in vars(config) and usual not in vars(config):
                found[usual] = other
    return found


def defaults(model_type: str, names: Mapping[str, str]) -> dict[str, Any]:
    """Map standard config keys to the class's defaults, without those that follow from others."""
    kind = CONFIG_MAPPING[model_type]
    stated = {
        f.name: f.default
        for f in fields(kind)
        if f.default is not MISSING and f.default is not None
    }
    found: dict[str, Any] = {}
    for usual in POSITIONAL:
        value = stated.get(names.get(usual, usual))
        if value is not None:
            found[usual] = list(value) if isinstance(value, tuple) else value
    mended = watched.config(model_type)
    plain: Any = mended
    with suppress(Exception):  # its own defaults contradict each other
        plain = kind()
    made, rope = vars(plain), vars(plain).get("rope_parameters")
    rope = rope or vars(mended).get("rope_parameters")
    if rope:
        found["rope_parameters"] = json.loads(json.dumps(rope))
    for usual in (
        "num_key_value_heads",
        "head_dim",
        "num_attention_heads",
        "max_position_embeddings",
    ):
        own = names.get(usual, usual)
        if usual not in found and not _follows(model_type, own, usual, names):
            found[usual] = made.get(own)
    return {k: v for k, v in found.items() if v is not None}


def _follows(model_type: str, own: str, usual: str, names: Mapping[str, str]) -> Any:
    """Test whether a default follows from other keys: heads, or width divided by heads."""
    config = watched.config(model_type)
    value = vars(config).get(own)
    if value is None or usual not in ("num_key_value_heads", "head_dim"):
        return value is None
    heads = getattr(config, "num_attention_heads", None)
    width = getattr(config, "hidden_size", None)
    if usual == "num_key_value_heads":
        return value == heads
    rope = vars(config).get(names.get("head_dim", "head_dim"))
    return value == rope or (heads and width and value == width // heads)


def turning(model_type: str) -> dict[str, Any]:
    """Return the pair layout of a model's rotation, and its place and direction if unusual."""
    found = _rotation(model_type)
    made: dict[str, Any] = {"layout": found.layout}
    flag = "rope_interleave"
    if flag in {field.name for field in fields(CONFIG_MAPPING[model_type])}:
        flipped = not getattr(watched.config(model_type), flag)
        if _rotation(model_type, **{flag: flipped}).layout != found.layout:
            made["layout_key"] = flag
    if found.place != "leading":
        made["place"] = found.place
    if len(found.theta) and float(found.theta.sum()) < 0:
        made["sign"] = -1
    return made


def _rotation(model_type: str, **given: Any) -> watched.Rotation:
    """Measure a model's rotation by running the model or, if that fails, its rotation function."""
    config = watched.config(model_type, **given)
    try:
        seen = watched.run(config)
        call = next(iter({call.function.__name__: call for call in seen.main}.values()))
    except Exception as error:
        print(f"{model_type}: not run, {type(error).__name__}: {error}"[:160], file=sys.stderr)
        seen, call = watched.alone(config)
    return watched.rotation(seen, call)


NAMES = re.compile(
    r"(^|\.)(position_embeddings?|embed_positions|wpe|positions_embed|pos_embed|pos_emb"
    r"|position_embeds_layer|char_position_embeddings|positional_embedding)(\.weights?|\.\w+)?$"
)


def added(model_type: str, config: PreTrainedConfig, names: Mapping[str, str]) -> dict[str, Any]:
    """Describe the table that a model adds to embeddings: learned or fixed, length, first row."""
    model = watched.built(config)
    buffers = [(n, b) for n, b in model.named_buffers() if b.is_floating_point()]
    stacks = {}
    for name, table in (*model.named_parameters(), *buffers):
        if NAMES.search(name) and table.ndim in (2, 3):
            owner = model.get_submodule(name.rsplit(".", 1)[0]) if "." in name else model
            part = "decoder" if "decoder" in name else "encoder" if "encoder" in name else ""
            stacks[part] = _table(model, config, names, owner, table, part)
    if not stacks:
        raise LookupError("no table of positions")
    if {"encoder", "decoder"} <= stacks.keys():
        both = {part: stacks[part] for part in sorted(stacks, reverse=True) if part}
        (kind,) = {stack.pop("kind") for stack in both.values()}
        return {"kind": kind, "stacks": both}
    return next(iter(stacks.values()))


def _table(
    model: nn.Module,
    config: PreTrainedConfig,
    names: Mapping[str, str],
    owner: nn.Module,
    table: Tensor,
    part: str,
) -> dict[str, Any]:
    rows = table.shape[-2]
    learned = isinstance(table, nn.Parameter) and "Sinus" not in type(owner).__name__
    made: dict[str, Any] = {"kind": "learned" if learned else "sinusoidal"}
    own = {
        "num_hidden_layers": f"{part}_layers",
        "num_attention_heads": f"{part}_attention_heads",
    }
    own = {usual: key for usual, key in own.items() if part and key in vars(config)}
    if own:
        made["keys"] = own
    usual = "max_position_embeddings"
    longest = getattr(config, own.get(usual, names.get(usual, usual)), None)
    source = inspect.getsource(sys.modules[type(model).__module__])
    offset = getattr(owner, "offset", 0) or 0
    if hasattr(owner, "offset"):
        made["offset"] = offset
    elif getattr(owner, "padding_idx", None) is not None and "create_position_ids_from" in source:
        made["offset"] = "pad + 1"
    if longest is None:
        side = [getattr(config, key, None) for key in ("image_size", "patch_size")]
        if any(x is None for x in side):
            raise LookupError(f"no key states the {rows} rows")
        image, patch = ([x, x] if isinstance(x, int) else x for x in side)
        cells = (image[0] // patch[0]) * (image[1] // patch[1])  # type: ignore[index]
        if not 0 <= rows - cells <= 2:
            raise LookupError(f"{rows} rows for {cells} patches")
        made["grid"] = ["image_size", "patch_size"]
        longest = cells
    if table.shape[-1] != config.hidden_size:
        of = ("embedding_size", "input_embedding_size", "word_embed_proj_dim")
        same = [key for key in of if getattr(config, key, None) == table.shape[-1]]
        if not same:
            raise LookupError(f"no key states the {table.shape[-1]} channels of its rows")
        made["width"] = same[0]
    if rows != longest:
        made["extra"] = rows - longest
    if not learned:
        made["waves"] = form(_made(owner, rows, 64).detach().double())
    return made


def _made(owner: nn.Module, rows: int, width: int) -> Tensor:
    kind: Any = type(owner)
    for made in (
        lambda: kind.get_embedding(rows, width),
        lambda: kind.get_embedding(rows, width, 1),
        lambda: kind(rows, width).create_weight(),
        lambda: kind(rows, width).positional_embedding,
        lambda: kind(width)(torch.zeros(1, rows, width))[0],
    ):
        try:
            table = made()
        except (AttributeError, TypeError):
            continue
        if table is not None:
            return table.detach()
    raise LookupError(f"{kind.__name__}: no function makes its table")


def fixed(config: PreTrainedConfig, width: int, rows: int) -> Tensor:
    """Return the first rows of a model's fixed position table, made by the model's function."""
    model = watched.built(config)
    module = sys.modules[type(model).__module__]
    if hasattr(module, "sinusoids"):
        return module.sinusoids(rows, width)
    if hasattr(module, "positional_encoding"):
        return module.positional_encoding(rows, width, torch.float)
    if hasattr(module, "create_sinusoidal_positions"):
        return module.create_sinusoidal_positions(rows, width)
    owners = [m for m in model.modules() if re.search("Sinus|PositionalEmb", type(m).__name__)]
    if config.model_type == "timesfm":
        return type(owners[0])(config)(rows)[0]
    return _made(owners[0], rows, width)


def form(table: Tensor) -> dict[str, Any]:
    """Find the form of a sinusoidal table: order of sines and cosines, base and step."""
    pos = torch.arange(len(table), dtype=torch.float64)[:, None]
    pairs = table.shape[-1] // 2
    for step, last in (("d/2", pairs), ("d/2 − 1", pairs - 1)):
        angle = pos * torch.exp(-math.log(10_000.0) * torch.arange(pairs) / last)
        for cosines_first, halves in product((False, True), (True, False)):
            waves = [angle.sin(), angle.cos()][:: -1 if cosines_first else 1]
            made = torch.cat(waves, -1) if halves else torch.stack(waves, -1).flatten(-2)
            # fairseq's tables have zeros in the row of the padding token
            if ((table - made).abs().amax(-1) > 1e-4).sum() <= 1:
                other = {"cosines_first": True} if cosines_first else {}
                return {"halves": halves, **other, "base": 10_000.0, "step": step}
    raise LookupError("a table of waves in no form that is known")


def main() -> None:
    unknown = {name for name in families.named_by_hand() if name not in CONFIG_MAPPING}
    if unknown:
        sys.exit(f"transformers has no {', '.join(sorted(unknown))}")
    watched.quiet()
    names = [name for name in sys.argv[1:] if name != "--check"]
    file = ROOM / "families.json"
    held = json.loads(file.read_text("utf-8"))
    lines = {name: held[name] for name in held if names and name in CONFIG_MAPPING}
    for model_type in names or CONFIG_MAPPING.keys():
        try:
            lines[model_type] = json.loads(_compact(line(model_type)))
        except Exception as error:
            print(f"{model_type}: {type(error).__name__}: {error}"[:200], file=sys.stderr)
    written = [f"{json.dumps(name)}: {_compact(lines[name])}" for name in sorted(lines)]
    text = "{\n" + ",\n".join(written) + "\n}\n"
    if "--check" not in sys.argv:
        file.write_text(text, "utf-8")
        print("\n".join(f"{name}: {_compact(lines[name])}" for name in names if name in lines))
    elif file.read_text("utf-8") != text:
        sys.exit("families.json is stale: run `python tools/families.py`.")


def _compact(values: Mapping[str, Any]) -> str:
    kept = {k: values[k] for k in FIELDS if values.get(k) not in ({}, [], "", None)}
    return json.dumps(kept, ensure_ascii=False, default=str)


if __name__ == "__main__":
    main()
