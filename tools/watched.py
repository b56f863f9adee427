"""Record how transformers' models use positions, for families.py and the tests.

A model is built on the meta device, which costs nothing, and run on four tokens while the functions
that turn queries and keys, and the one that attends, record their arguments. Only values that
concern positions are computed for real.
"""

import importlib
import inspect
import re
import sys
import types
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import torch
import transformers.masking_utils as masking_utils
from torch import Tensor, nn
from transformers import CONFIG_MAPPING, MODEL_MAPPING, AutoModel, PreTrainedModel
from transformers.configuration_utils import PreTrainedConfig
from transformers.models.auto.modeling_auto import MODEL_MAPPING_NAMES
from transformers.utils import logging

TURNS = re.compile(r"apply_.*(rot|rope)|^rotate_queries_or_keys$", re.I)
TABLES = re.compile(r"(rotary|rope).*(embedding|emb)$", re.I)
LAYER = re.compile(r"(?:layers|layer|h|blocks|block)\.(\d+)\b")
TOKENS = 4
FAR = 2**18  # tokens further than any window

# Keys without which a model cannot be built, because the defaults of its class are contradictory
MENDED: dict[str, dict[str, Any]] = {
    "cohere_compass_text": {
        "rope_parameters": {"full_attention": {"rope_type": "default", "rope_theta": 1e4}}
    },
    "deepseek_ocr2_text": {"num_hidden_layers": 12, "mlp_layer_types": ["dense"] * 12},
    "diffusion_gemma_text": {"num_experts": 4, "top_k_experts": 2, "moe_intermediate_size": 64},
    "dots1": {"n_routed_experts": 8, "n_shared_experts": 1, "num_experts_per_tok": 2},
    "esm": {
        "vocab_size": 33,
        "pad_token_id": 1,
        "mask_token_id": 32,
        "position_embedding_type": "rotary",
    },
    "glm4_moe": {"head_dim": 128},
    "glm4v_moe_text": {
        "head_dim": 128,
        "rope_parameters": {"rope_theta": 1e4, "partial_rotary_factor": 0.5},
    },
    "glm4v_text": {"rope_parameters": {"rope_theta": 1e4, "partial_rotary_factor": 0.5}},
    "glm_image_text": {"rope_parameters": {"rope_theta": 1e4, "partial_rotary_factor": 0.5}},
    "granitemoehybrid": {
        "position_embedding_type": "rope",
        "layer_types": ["full_attention", *["linear_attention"] * 31],
    },
    "hunyuan_v1_dense": {"head_dim": 128},
    "hunyuan_v1_moe": {"head_dim": 128},
    "lfm2_moe": {"layer_types": ["full_attention", *["conv"] * 31]},
    "minimax_m3_vl_text": {"rope_parameters": {"rope_theta": 5e6, "partial_rotary_factor": 0.5}},
    "ministral": {"head_dim": 128},
    "nemotron": {"num_key_value_heads": 8},
    "nougat": {"encoder": {"model_type": "donut-swin"}, "decoder": {"model_type": "mbart"}},
    "qwen3_omni_moe_text": {"head_dim": 128},
    "qwen3_omni_moe_talker_text": {
        "shared_expert_intermediate_size": 64,
        "rope_parameters": {"rope_theta": 1e6, "mrope_section": [12, 10, 10]},
    },
    "qwen4_exp_text": {"rope_parameters": {"rope_theta": 1e7, "partial_rotary_factor": 0.25}},
    "step3p5": {"sliding_window": 512},
    "t5gemma2_decoder": {"dropout_rate": 0.0},
    "t5gemma2_text": {"dropout_rate": 0.0},
}


@dataclass
class Turned:
    """A recorded call of a function that rotates: the layer, the function, and its arguments."""

    layer: int
    where: str  # the module that called it
    function: Callable[..., Any]
    arguments: dict[str, Any]


@dataclass
class Attended:
    """A recorded call of attention: the layer, and the shapes (batch, head, token, channel)."""

    layer: int
    where: str  # the module that was entered last
    query: tuple[int, ...]
    key: tuple[int, ...]
    scale: float | None
    window: int | None  # the argument of the attention function
    sees: tuple[int | None, int | None] | None  # by its mask: keys back, itself included, and ahead
    softcap: float | None = None
    sinks: bool = False


@dataclass
class Trace:
    model: nn.Module
    config: PreTrainedConfig
    turned: list[Turned] = field(default_factory=list)
    attended: list[Attended] = field(default_factory=list)
    tables: list[Tensor] = field(default_factory=list)  # of angles, as they were computed

    @property
    def main(self) -> list[Turned]:
        """The rotations for attention itself, without those of an indexer or a key compressor."""
        return [call for call in self.turned if not re.search("indexer|compress", call.where)]

    @property
    def turns(self) -> set[int]:
        return {call.layer for call in self.main}

    @property
    def attends(self) -> set[int]:
        return {call.layer for call in self.attended}


def quiet() -> None:
    logging.set_verbosity_error()
    warnings.simplefilter("ignore")


def config(model_type: str, **given: Any) -> PreTrainedConfig:
    """Return the default config of a model type, corrected where the default is invalid."""
    return CONFIG_MAPPING[model_type](**{**MENDED.get(model_type, {}), **given})


def inner(of: PreTrainedConfig) -> tuple[str, ...]:
    """Return the keys of the configs nested in a config."""
    return tuple(k for k, v in vars(of).items() if isinstance(v, PreTrainedConfig))


def modules(of: type[PreTrainedConfig]) -> Iterator[types.ModuleType]:
    """Yield the Python modules with the model classes of a config class."""
    package = of.__module__.rsplit(".", 1)[0]
    folder = Path(str(sys.modules[of.__module__].__file__)).parent
    files = sorted(folder.glob("modeling_*.py"))
    for file in files:
        with suppress(ImportError):
            yield importlib.import_module(f"{package}.{file.stem}")
    if not files and of in MODEL_MAPPING:
        yield sys.modules[MODEL_MAPPING[of].__module__]


def model_class(of: type[PreTrainedConfig]) -> type[PreTrainedModel] | None:
    """Return the simplest model class whose config class is this one."""
    found = [
        kind
        for module in modules(of)
        for name, kind in vars(module).items()
        if inspect.isclass(kind)
        and issubclass(kind, PreTrainedModel)
        and kind.__module__ == module.__name__
        and kind.config_class is of
        and not name.endswith("PreTrainedModel")
    ]
    plain = ("Model", "Encoder", "Decoder", "Transformer", "Backbone")

    def order(kind: type) -> tuple[bool, bool, bool, int]:
        return (
            kind.__name__.endswith("Stack"),
            not kind.__name__.endswith(plain),
            "For" in kind.__name__,
            len(kind.__name__),
        )

    return min(found, key=order, default=None)


def built(of: PreTrainedConfig) -> nn.Module:
    """Build the model of a config on the meta device."""
    of._attn_implementation = "eager"
    with torch.device("meta"), _without_values():
        if of.model_type in MODEL_MAPPING_NAMES and of.model_type != "voxtral_realtime_text":
            return AutoModel.from_config(of, attn_implementation="eager").eval()
        kind = model_class(type(of))
        if kind is None:
            raise LookupError(f"no model is built from {type(of).__name__}")
        return kind(of).eval()


@contextmanager
def _without_values() -> Iterator[None]:
    """Skip the initialisation of weights, which is slow and has no effect on the meta device."""
    kinds = [nn.Linear, nn.Embedding, nn.Conv1d, nn.Conv2d, nn.LayerNorm]
    kept = {kind: kind.reset_parameters for kind in kinds}
    for kind in kinds:
        kind.reset_parameters = lambda self: None  # type: ignore[method-assign]
    try:
        yield
    finally:
        for kind, own in kept.items():
            kind.reset_parameters = own  # type: ignore[method-assign]


def trace(model_type: str, **given: Any) -> Trace:
    """Run a model of default size, and record the attention and rotation calls of each layer."""
    return run(config(model_type, **given))


def run(of: PreTrainedConfig, model: nn.Module | None = None) -> Trace:
    """Run the model of a config, built if it is not passed, and return its recorded calls."""
    seen = Trace(model or built(of), of)
    at = [""]
    with _masked(), _watched(seen, at), torch.no_grad(), torch.device("meta"):
        wanted = inspect.signature(seen.model.forward).parameters
        inputs: dict[str, Any] = {}
        if "input_ids" in wanted:
            inputs["input_ids"] = torch.zeros(1, TOKENS, dtype=torch.long)
        elif "inputs_embeds" in wanted:
            inputs["inputs_embeds"] = torch.zeros(1, TOKENS, of.hidden_size)
        elif "hidden_states" in wanted:
            inputs["hidden_states"] = torch.zeros(1, TOKENS, of.hidden_size)
        if "decoder_input_ids" in wanted:
            inputs["decoder_input_ids"] = torch.zeros(1, TOKENS, dtype=torch.long)
        seen.model(**inputs)
    return seen


def _layer(name: str) -> int:
    found = LAYER.findall(name)
    return int(found[0]) if found else -1


def real(value: Any) -> Any:
    """Replace a meta tensor by a real one: positions if its type is integer, otherwise zeros."""
    if not isinstance(value, Tensor) or not value.is_meta:
        return value
    if value.is_floating_point():
        return torch.zeros(value.shape, device="cpu")
    return torch.arange(value.shape[-1], device="cpu").expand(value.shape)


def _mask(
    batch_size: int, q_length: int, kv_length: int, mask_function: Callable[..., Any], **_: Any
) -> Tensor:
    """Return a mask without values, whose attribute `sees` states the reach of the mask."""
    with torch.device("cpu"):
        first, others = torch.tensor(0), torch.arange(FAR)
        back = mask_function(0, 0, others, first).broadcast_to(FAR)
        ahead = mask_function(0, 0, first, others).broadcast_to(FAR)
    mask = torch.zeros(batch_size, 1, q_length, kv_length, device="meta")
    counts = [None if seen.all() else int(seen.sum()) for seen in (back, ahead)]
    mask.sees = (counts[0], None if counts[1] is None else counts[1] - 1)  # type: ignore[attr-defined]
    return mask


@contextmanager
def _masked() -> Iterator[None]:
    """Make transformers create masks without values in a `with` block, to record their reach."""
    kept, chunked = (
        masking_utils.ALL_MASK_ATTENTION_FUNCTIONS["eager"],
        masking_utils.chunked_overlay,
    )
    masking_utils.ALL_MASK_ATTENTION_FUNCTIONS["eager"] = _mask
    masking_utils.chunked_overlay = lambda size, _: chunked(size, torch.zeros(1, device="cpu"))
    try:
        yield
    finally:
        masking_utils.ALL_MASK_ATTENTION_FUNCTIONS["eager"] = kept
        masking_utils.chunked_overlay = chunked


@contextmanager
def _watched(seen: Trace, at: list[str]) -> Iterator[None]:
    module = sys.modules[type(seen.model).__module__]
    kept = dict(vars(module))
    for name, function in kept.items():
        if name == "eager_attention_forward":
            setattr(module, name, _attention(seen, at))
        elif isinstance(function, types.FunctionType) and TURNS.search(name):
            setattr(module, name, _turning(seen, at, function))
    for name, part in list(seen.model.named_modules()):
        part.register_forward_pre_hook(lambda *_, _name=name: at.__setitem__(0, _name))
        if TABLES.search(type(part).__name__) and hasattr(part, "config"):
            part.forward = _computed(seen, type(part)(config=part.config))
        elif re.search(r"(mlp|feed_forward|block_sparse_moe|moe|ffn|experts)$", name):
            two = _returns_two(type(part))
            part.forward = (lambda x, *_, **__: (x, None)) if two else (lambda x, *_, **__: x)
        elif re.search(r"(RMS|Layer)Norm$", type(part).__name__):
            part.forward = lambda x, *_, **__: x
    try:
        yield
    finally:
        for name, value in kept.items():
            setattr(module, name, value)


@cache
def _returns_two(kind: type[nn.Module]) -> bool:
    """Test by its source whether a module returns two values, as a router of experts does."""
    return bool(re.search(r"return \w+, \w+", inspect.getsource(kind.forward)))


def _computed(seen: Trace, table: nn.Module) -> Callable[..., Any]:
    """Return a forward method that computes cosines and sines on the CPU, and records them."""

    def forward(*given: Any, **named: Any) -> Any:
        with torch.device("cpu"):
            out = table(*map(real, given), **{name: real(value) for name, value in named.items()})
        seen.tables += [x for x in _listed(out) if isinstance(x, Tensor)]
        return out

    return forward


def _turning(seen: Trace, at: list[str], function: Callable[..., Any]) -> Callable[..., Any]:
    signature = inspect.signature(function)

    def watched(*given: Any, **named: Any) -> Any:
        arguments = dict(signature.bind(*given, **named).arguments)
        seen.turned.append(Turned(_layer(at[0]), at[0], function, arguments))
        # others of this kind that it calls were replaced as well: what they would note is dropped
        count = len(seen.turned)
        with torch.device("cpu"):
            out = function(
                *map(real, given), **{name: real(value) for name, value in named.items()}
            )
        del seen.turned[count:]
        meta = [x.to("meta") if isinstance(x, Tensor) else x for x in _listed(out)]
        return tuple(meta) if isinstance(out, tuple) else meta[0]

    return watched


def _listed(out: Any) -> list[Any]:
    return list(out) if isinstance(out, tuple) else [out]


def _attention(seen: Trace, at: list[str]) -> Callable[..., Any]:
    def attend(
        module: nn.Module,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attention_mask: Any = None,
        scaling: float | None = None,
        sliding_window: int | None = None,
        softcap: float | None = None,
        s_aux: Any = None,
        **_: Any,
    ) -> tuple[Tensor, None]:
        shapes = tuple(query.shape), tuple(key.shape)
        sees = getattr(attention_mask, "sees", None)
        more = softcap, s_aux is not None
        told = Attended(_layer(at[0]), at[0], *shapes, scaling, sliding_window, sees, *more)
        seen.attended.append(told)
        batch, heads, tokens = query.shape[:3]
        return value.new_zeros(batch, tokens, heads, value.shape[-1]), None

    return attend


@dataclass
class Rotation:
    """The rotation of a head at each position, measured with unit vectors."""

    layout: str  # "half", "interleaved", or "" if it is neither
    pairs: tuple[tuple[int, int], ...]
    theta: Tensor  # radians from one position to the next, signed
    gain: float
    place: str  # of the pairs among the channels of the call
    dim: int


def after(call: Turned) -> bool:
    """Test whether a head's rotated channels are its last ones, by names in the source.

    It goes by the names in the source, such as "torch.cat((q_pass, q_rot), dim=-1)".
    """
    source = inspect.getsource(sys.modules[call.function.__module__])
    rest, part = r"\w*(?:pass|nope)\w*", r"\w*(?:rot|pe|rope)"
    behind = re.search(rf"cat\(\s*[\[(]\s*{rest}, {part}\s*[\])]", source)
    before = re.search(rf"cat\(\s*[\[(]\s*{part}, {rest}\s*[\])]", source)
    return bool(behind) and not (before and call.where == "")


def rotation(seen: Trace, call: Turned) -> Rotation:
    """Measure the rotation of a recorded call. Raises ValueError unless it rotates pairs."""
    matrix, dim = _matrix(seen, call)  # (token, out, in)
    used = (matrix.abs() > 1e-14).any(0)
    groups: dict[tuple[int, ...], list[int]] = {}
    for channel in range(dim):
        groups.setdefault(tuple(used[:, channel].nonzero().flatten().tolist()), []).append(channel)
    pairs = sorted((a[0], a[1]) for a in groups.values() if len(a) == 2)
    alone = [a[0] for a in groups.values() if len(a) == 1]
    if 2 * len(pairs) + len(alone) != dim:
        raise ValueError(f"not pairs: {sorted(groups.values())[:4]}")
    out = {a: tuple(used[:, a].nonzero().flatten().tolist()) for a, _ in pairs}
    thetas, gains = [], []
    for a, b in pairs:
        p, q = out[a]
        turn = matrix[:, [p, q]][:, :, [a, b]]  # g [[cos, −sin], [sin, cos]]
        cos, sin = turn[:, 0, 0], turn[:, 1, 0]
        if (turn[:, 1, 1] - cos).abs().max() > 1e-6 or (turn[:, 0, 1] + sin).abs().max() > 1e-6:
            raise ValueError(f"channels {a} and {b} are not turned by one angle")
        thetas.append(torch.atan2(sin[1], cos[1]))
        gains.append(torch.hypot(sin[1], cos[1]))
    first = pairs[0][0] if pairs else 0
    apart = {b - a for a, b in pairs}
    beside = [(first + 2 * n, first + 2 * n + 1) for n in range(len(pairs))]
    row = [a for a, _ in pairs] == [*range(first, first + len(pairs))]
    half = row and apart in ({len(pairs)}, {dim // 2})
    layout = "interleaved" if pairs == beside else "half" if half else ""
    place = "trailing" if first and alone else "leading"
    gain = float(torch.stack(gains).mean()) if gains else 1.0
    theta = torch.stack(thetas) if thetas else torch.zeros(0)
    return Rotation(layout, tuple(pairs), theta, gain, place, dim)


def _matrix(seen: Trace, call: Turned) -> tuple[Tensor, int]:
    """Return the rotation matrices by position: (token, output channel, input channel)."""
    given = {k: v for k, v in call.arguments.items() if isinstance(v, Tensor) and v.is_meta}
    first, meta = next(iter(given.items()))
    dim = meta.shape[-1]
    alike = [v for v in given.values() if v.ndim == meta.ndim]  # there may be as many heads
    axes = [n for n, size in enumerate(meta.shape[1:-1], 1) if size == TOKENS]
    stated = inspect.signature(call.function).parameters.get("unsqueeze_dim")
    heads_at = call.arguments.get("unsqueeze_dim", stated and stated.default)
    axes.sort(key=lambda n: n == heads_at)  # where there are as many heads, tokens lie elsewhere
    tokens_at = next((n for n in axes if all(v.shape[n] == TOKENS for v in alike)), axes[0])
    angles = {k: _angles(seen, call, k) for k in given if k in ("cos", "sin", "freqs_cis")}

    def lone(shape: Sequence[int]) -> list[int]:  # a sequence for each channel, of one head
        middle = [TOKENS if n == tokens_at else 1 for n in range(1, len(shape) - 1)]
        return [dim, *middle, shape[-1]]

    zeros = {k: torch.zeros(lone(v.shape)) for k, v in given.items() if v.ndim == meta.ndim}
    units = torch.eye(dim).reshape([dim] + [1] * (meta.ndim - 2) + [dim])
    x = zeros[first] + units
    y = _listed(call.function(**{**call.arguments, **zeros, **angles, first: x}))[0]
    return y.movedim(tokens_at, 1).flatten(1, -2)[:, :TOKENS].permute(1, 2, 0).double(), dim


def _angles(seen: Trace, call: Turned, name: str) -> Tensor:
    """Return the recorded cosines or sines that a call received as meta tensors."""
    shape = call.arguments[name].shape
    same = [x for x in seen.tables if x.shape == shape]
    if same:
        return same[-1]
    module = sys.modules[call.function.__module__]
    table = module.create_sinusoidal_positions(TOKENS, 2 * shape[-1])  # GPT-J: sines, then cosines
    return table.chunk(2, -1)[name == "cos"].reshape(shape)


POSITIONAL = re.compile(
    r"(^|[._])(pos|position|positional|relative|rotary|rope|inv_freq|alibi|wpe|embed_positions)([._]|$)"
)


def behaviour(of: PreTrainedConfig, seen: Trace | None = None) -> dict[str, Any]:
    """Describe how a model uses positions, as data that is equal for equal behaviour.

    `seen` is the model, run, if it has been.
    """
    model = seen.model if seen else built(of)
    named = (*model.named_parameters(), *model.named_buffers())
    found: dict[str, Any] = {
        "tables": {n: tuple(p.shape) for n, p in named if POSITIONAL.search(n)}
    }
    try:
        seen = seen or run(of, model)
        calls = {(call.layer, call.where): call for call in seen.main}
    except Exception:  # it cannot be run on nothing
        with suppress(Exception):
            seen, call = alone(of)
            found["turned"] = _plain(rotation(seen, call))
        return found
    alike: dict[Any, tuple[Any, ...]] = {}  # layers share their tables of angles
    found["turned"] = []
    for (layer, _), call in calls.items():
        given = call.arguments.values()
        same = (
            call.function,
            *(x.shape if isinstance(x, Tensor) and x.ndim > 3 else id(x) for x in given),
        )
        if same not in alike:
            alike[same] = _plain(rotation(seen, call))
        found["turned"].append((layer, *alike[same]))
    found["attended"] = [
        # some pass a window on to a kernel that the mask does not have
        (call.layer, call.query[-1], call.scale, call.sees or call.window)
        for call in seen.attended
    ]
    return found


def _plain(of: Rotation) -> tuple[Any, ...]:
    return of.layout, of.pairs, tuple(of.theta.tolist()), round(of.gain, 6), of.place, of.dim


def alone(of: PreTrainedConfig, layer_type: str = "") -> tuple[Trace, Turned]:
    """Prepare a call of the rotation function of a model that cannot be run as a whole."""
    table, more = table_of(of, layer_type)
    own = vars(sys.modules[type(table).__module__]).items()
    turn = next(f for n, f in own if TURNS.search(n) and not re.search("_vision|kernel", n))
    angles = table(torch.zeros(1, TOKENS, 8), position_ids=torch.arange(TOKENS)[None], **more)
    dim = getattr(of, "head_dim", None) or of.hidden_size // of.num_attention_heads
    x = torch.zeros(1, 2, TOKENS, dim, device="meta")
    names = list(inspect.signature(turn).parameters)
    given = zip([name for name in names if name in ("cos", "sin")], _listed(angles), strict=True)
    call = Turned(-1, "", turn, {names[0]: x, names[1]: x, **dict(given)})
    return Trace(nn.Module(), of), call


def table_of(of: Any, layer_type: str = "") -> tuple[nn.Module, dict[str, str]]:
    """Return the module that computes a model's angles, and extra arguments for its call."""
    for module in modules(type(of)):
        for name, kind in list(vars(module).items()):
            mine = getattr(kind, "__module__", "") == module.__name__
            if mine and TABLES.search(name) and "VisionRot" not in name:
                with suppress(Exception):
                    table = kind(config=of)
                    more = "layer_type" in inspect.signature(table.forward).parameters
                    return table, {"layer_type": layer_type or of.layer_types[0]} if more else {}
    raise LookupError(f"no rotation found in the files of {of.model_type}")
