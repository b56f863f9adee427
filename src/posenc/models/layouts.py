"""Permutations of q and k weights between the two layouts of rotary pairs.

    half          x₀ … x_{d/2−1}  x_{d/2} … x_{d−1}    pair j: channels j and j + d/2
    interleaved   x₀ x_{d/2}  x₁ x_{d/2+1}  …          pair j: channels 2j and 2j + 1

A score is a sum over the channels of a head, so it is unchanged if the channels of queries and keys
are permuted equally and the rotation uses the other layout. Rows of the q and k projections move,
with their biases and the gains of their norms. Values and channels without rotation stay.

Tensors are recognised by their names in transformers. An unknown tensor whose name suggests queries
or keys raises an error, because a partial permutation breaks a model.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from math import ceil
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from posenc.models.config import families, specify
from posenc.models.config.fields import Fields
from posenc.models.config.spec import Rotary, Spec
from posenc.models.files.errors import ModelError
from posenc.models.weights.info import BITS, Info
from posenc.models.weights.memory import check_memory
from posenc.support.text import printable

if TYPE_CHECKING:
    from posenc.core.frequencies import Layout

KEY = "posenc.layout"  # key in the metadata of safetensors
OTHER: dict[Layout, Layout] = {"half": "interleaved", "interleaved": "half"}

HOLDS = {  # module of attention → queries, keys or values in it
    "q_proj": "q", "q_b_proj": "q", "query": "q", "wq": "q",
    "k_proj": "k", "kv_a_proj_with_mqa": "k", "key": "k", "wk": "k",
    "v_proj": "v", "kv_b_proj": "v", "value": "v", "wv": "v",
    "query_key_value": "qkv", "qkv_proj": "qkv", "Wqkv": "qkv",
    "q_a_proj": "", "q_a_layernorm": "", "kv_a_layernorm": "",  # latents, which are not rotated
}  # fmt: skip
NORMS = {
    "q_norm": "q", "q_layernorm": "q", "query_layernorm": "q",
    "k_norm": "k", "k_layernorm": "k", "key_layernorm": "k",
}  # fmt: skip
ATTENTION = ("self_attn", "attn", "attention", "self_attention", "attention.self")
SHARED_KEY = "kv_a_proj_with_mqa"  # a latent, followed by one key for all heads

EACH, BLOCKS, GROUPS = "q k v, q k v, …", "q q … k … v …", "q q … k v, q q … k v, …"
FUSED = {  # order of the heads in a fused tensor
    ("query_key_value", "gpt_neox"): EACH,
    ("query_key_value", "gpt_neox_japanese"): EACH,
    ("query_key_value", "persimmon"): EACH,
    ("qkv_proj", "phi3"): BLOCKS,
    ("Wqkv", "modernbert"): BLOCKS,
}
GATED = ("qwen3_next", "qwen3_5_text", "qwen3_5_moe_text")  # q_proj: q gate, q gate, …

ROW = 64  # approximate bytes of an integer in a list
LOOKS_LIKE = re.compile(r"(?i)(?:^|[._])(?:w?(?:q|k|qk|kv|qkvz?)|query|queries|keys?)(?=[._]|$)")
IN_LAYER = re.compile(r"(.*?\b(?:layers|layer|h|blocks|block))\.(\d{1,6})\.(.+)")
NOT_TEXT = re.compile(r"(?i)vision|visual|vit\b|image|video|audio|speech|perceiver|resampler")

WEIGHT = re.compile(r"(base_layer\.)?weight")
LORA_B = r"lora_B(\.\w+)?\.(weight|bias)|lora_magnitude_vector(\.\w+)?(\.weight)?"
OF_ROWS = re.compile(rf"(base_layer\.)?(weight|bias)|{LORA_B}")
OF_COLUMNS = re.compile(r"lora_A(\.\w+)?\.weight")
SCALES = re.compile(r"(base_layer\.)?(weight_scale|weight_scale_inv)")
GAINS = re.compile(r"(norms\.\d+\.)?(weight|bias)")


def permutation(dim: int, turned: int, to: Layout, trailing: bool = False) -> list[int]:
    """Return the channel order that converts a head to the layout `to` from the other layout.

    Of `dim` channels, only the first `turned` are permuted, or the last if `trailing`.

    >>> permutation(8, 6, "interleaved")
    [0, 3, 1, 4, 2, 5, 6, 7]
    >>> permutation(8, 6, "half", trailing=True)
    [0, 1, 2, 4, 6, 3, 5, 7]
    """
    if to not in OTHER:
        raise ValueError(f"`to` must be {' or '.join(map(repr, OTHER))}, got {to!r}.")
    if turned % 2 or not 2 <= turned <= dim:
        raise ValueError(f"`turned` must be even and from 2 to {dim}, got {turned}.")
    start = dim - turned if trailing else 0
    channels = range(start, start + turned)
    # To interleaved: channels j and j + turned/2 become adjacent. To half: even, then odd channels.
    if to == "interleaved":
        pairs = zip(channels[: turned // 2], channels[turned // 2 :], strict=True)
        moved = [channel for pair in pairs for channel in pair]
    else:
        moved = [*channels[::2], *channels[1::2]]
    return [*range(start), *moved, *range(start + turned, dim)]


class Moves(NamedTuple):
    """Row permutations of weight tensors that convert one layout of rotary pairs to the other.

    `orders` maps the name of each changed tensor to the old indices of its rows, in new order.
    """

    orders: dict[str, list[int]]
    notes: list[str]


class Place(NamedTuple):
    """Parts of a tensor's name, such as "model.layers", 7, "q_proj", "weight"."""

    stack: str
    layer: int
    module: str  # "": unknown, or outside attention
    leaf: str


def plan(
    infos: Mapping[str, Info], config: Mapping[str, Any], to: Layout, file: str = "config.json"
) -> Moves:
    """Return the row permutations that convert the weights of q and k to the layout `to`.

    Raises ModelError with the name of a tensor for which this is uncertain. `file` is the name of
    the config in messages.
    """
    model_spec = specify(config, file)
    spec = model_spec.text_stack
    if not spec.rotary:
        raise ModelError(
            file,
            "",
            f"{spec.model!r} has no rotary layers, so it has no pair layout to convert",
        )
    model = Projections(spec, Fields(config_of(config, spec.model), file))
    candidates = [name for name in infos if LOOKS_LIKE.search(name)]
    stack, others = _stack(infos, candidates, composite=bool(model_spec.parts))
    orders = {}
    for name in candidates:
        place = _place(name)
        if place is not None and place.stack == stack:
            order = _order(infos[name], place, model, to)
            if order is not None:
                orders[name] = order
    _complete(infos, stack, model)
    return Moves(orders, list(_notes(stack, others, model)))


def config_of(config: Mapping[str, Any], model: str) -> Mapping[str, Any]:
    """Return the config whose `model_type` is `model`: the outer config, or a nested one."""
    inner = (part for part in config.values() if isinstance(part, dict))
    return next((part for part in (config, *inner) if part.get("model_type") == model), config)


class Projections:
    """Order and size of the heads in a model's query and key projections, from its config."""

    def __init__(self, spec: Spec, own: Fields):
        self.name, self.heads, self.groups, self.own = spec.model, spec.heads, spec.groups, own
        # Further layers for multi-token prediction
        ahead = own.count("num_nextn_predict_layers", least=0) or 0
        self.needed = len(spec.layers)
        self.layers = [*spec.layers, *[spec.layers[-1]] * min(ahead, 100)]

    def rotary(self, layer: int) -> Rotary | None:
        """Return the RoPE of a layer; None if the layer has none."""
        encoding = self.layers[layer].encoding
        return encoding if isinstance(encoding, Rotary) else None

    def rotated_heads(self, module: str, info: Info) -> list[bool]:
        """Return one flag for each head of a projection, in row order: True if rotated."""
        heads, groups, holds = self.heads, self.groups, HOLDS[module]
        if module == SHARED_KEY:
            return [True]
        if module == "q_proj" and self.name in GATED:
            return [True, False] * heads
        if holds != "qkv":
            return [True] * (heads if holds == "q" else groups)
        form = FUSED.get((module, self.name))
        if (module, self.name) == ("query_key_value", "falcon"):
            form, groups = self._falcon()
        if form is None:
            _refuse(info, f"fuses queries and keys in an order that is unknown for {self.name!r}")
        if form == EACH:
            return [True, True, False] * heads
        if form == BLOCKS:
            return [True] * (heads + groups) + [False] * groups
        return ([True] * (heads // groups + 1) + [False]) * groups

    def _falcon(self) -> tuple[str, int]:
        if self.own.flag("new_decoder_architecture"):
            return GROUPS, self.own.count("num_kv_heads") or self.heads
        return (EACH, self.heads) if self.own.flag("multi_query") is False else (BLOCKS, 1)

    def channels(self, module: str, rotary: Rotary) -> int:
        """Return the number of rows that each head has in a projection."""
        if module != SHARED_KEY:
            return rotary.dim
        rank = self.own.count("kv_lora_rank")
        if rank is None:
            self.own.fail("kv_lora_rank", "is missing")
        return rank + rotary.turned


def _place(name: str) -> Place | None:
    """Split the name of a tensor; None for a tensor outside the layers."""
    at = IN_LAYER.fullmatch(name)
    if at is None:
        return None
    words = at[3].split(".")
    for i, word in enumerate(words):
        if word in HOLDS or word in NORMS:
            in_attention = ".".join(words[:i]) in ATTENTION
            return Place(at[1], int(at[2]), word if in_attention else "", ".".join(words[i + 1 :]))
    return Place(at[1], int(at[2]), "", at[3])


def _stack(
    infos: Mapping[str, Info], candidates: Sequence[str], composite: bool
) -> tuple[str, list[str]]:
    """Return the name prefix of the text model's tensors, and the q and k tensors that lack it."""
    places = {name: _place(name) for name in candidates}
    stacks = list(dict.fromkeys(place.stack for place in places.values() if place))
    if composite:
        stacks = [stack for stack in stacks if not NOT_TEXT.search(stack)]
    file = next(iter(infos.values())).file if infos else "weights"
    if not stacks:
        raise ModelError(file, "", "contains no query and key projections of layers")
    if len(stacks) > 1:
        first = ", ".join(stacks[:4])
        raise ModelError(file, "", "contains several stacks of layers", first, "one")
    others = [name for name, place in places.items() if not place or place.stack != stacks[0]]
    if others and not composite:
        _refuse(infos[others[0]], "looks like a query or key weight, but is outside of the layers")
    return stacks[0], others


def _order(info: Info, place: Place, model: Projections, to: Layout) -> list[int] | None:
    """Return the new row order of a q or k tensor, as a list of old indices; None if unchanged.

    A gain of a norm has one number in place of each row.
    """
    module, leaf = place.module, place.leaf
    if place.layer >= len(model.layers):
        last = len(model.layers) - 1
        raise ModelError(
            info.file,
            info.name,
            "must be in one of the layers that the config describes",
            place.layer,
            f"0 … {last}",
        )
    rotary = model.rotary(place.layer)
    # A single number applies to all channels
    if rotary is None or info.elements <= 1:
        return None
    if not module:
        _refuse(info, "looks like a query or key weight, but its module is unknown")
    if HOLDS.get(module) in ("", "v") or OF_COLUMNS.fullmatch(leaf):
        return None
    if module in NORMS:
        if not GAINS.fullmatch(leaf):
            _refuse(info, "belongs to an unknown norm of queries or keys")
        heads = model.heads if NORMS[module] == "q" else model.groups
        rotated = [True] * (1 if info.elements == rotary.dim else heads)
        _check_rows(info, info.elements, len(rotated), rotary.dim)
        order = permutation(rotary.dim, rotary.turned, to, rotary.trailing)
        return _moved_rows(rotated, order)
    rotated, dim = model.rotated_heads(module, info), model.channels(module, rotary)
    trailing = rotary.trailing or module == SHARED_KEY
    blocks = bool(SCALES.fullmatch(leaf)) and info.shape[0] != len(rotated) * dim
    if not blocks and not SCALES.fullmatch(leaf) and not OF_ROWS.fullmatch(leaf):
        _refuse(info, "is stored without separate rows. Convert the model before you quantise it")
    if not blocks:
        _check_rows(info, info.shape[0], len(rotated), dim)
    check_memory(ROW * len(rotated) * dim, info.file, info.name, of="of memory")
    order = _moved_rows(rotated, permutation(dim, rotary.turned, to, trailing))
    return _check_blocks(info, order, model) if blocks else order


def _moved_rows(rotated: Sequence[bool], order: list[int]) -> list[int]:
    """Return the new row order as old indices; `order` permutes the rows of each rotated head."""
    stay = range(len(order))
    return [
        head * len(order) + channel
        for head, moves in enumerate(rotated)
        for channel in (order if moves else stay)
    ]


def _check_rows(info: Info, rows: int, heads: int, dim: int) -> None:
    whole_bytes = info.elements * BITS[info.dtype] % (8 * max(rows, 1)) == 0
    if rows != heads * dim or not whole_bytes:
        needs = f"{heads * dim} rows, {heads} times {dim}"
        raise ModelError(info.file, info.name, "must match the config", list(info.shape), needs)


def _check_blocks(info: Info, order: list[int], model: Projections) -> None:
    """Raise ModelError if the new row order would mix rows with different quantisation scales."""
    quantized = model.own.object("quantization_config")
    size = (quantized.counts("weight_block_size", least=1) if quantized else None) or (0,)
    fits = size[0] > 0 and info.shape[0] == ceil(len(order) / size[0])
    if not fits or any(i // size[0] != j // size[0] for i, j in enumerate(order)):
        _refuse(info, "has scales for blocks of rows. Convert the model before you quantise it")


def _complete(infos: Mapping[str, Info], stack: str, model: Projections) -> None:
    """Raise ModelError unless each rotary layer has exactly one q, k and v projection.

    LoRA adapters may have any of them.
    In a layer without value projections, keys are also the values, whose channels must not move.
    """
    held: dict[int, list[str]] = {}
    for place in filter(None, map(_place, infos)):
        if place.stack == stack and WEIGHT.fullmatch(place.leaf):
            held.setdefault(place.layer, []).extend(HOLDS.get(place.module, ""))
    if not any(held.values()) and any(".lora_B." in name for name in infos):
        return
    file = next(iter(infos.values())).file
    for layer in sorted({*range(model.needed), *(held.keys() & range(len(model.layers)))}):
        has = sorted(held.get(layer, []))
        if model.rotary(layer) and has != ["k", "q", "v"]:
            problem = "must have queries, keys and values once each"
            raise ModelError(file, f"{stack}.{layer}", problem, ", ".join(has) or "none")


def _notes(stack: str, others: Sequence[str], model: Projections) -> Iterator[str]:
    if families.family(model.name) is None:
        yield f"{printable(model.name)!r} is unknown; the heads are assumed to be contiguous"
    unchanged = sum(model.rotary(layer) is None for layer in range(model.needed))
    if unchanged:
        yield f"{unchanged} of {model.needed} layers have no rotation and are unchanged"
    if others:
        yield (
            f"only {printable(stack)} is converted; {len(others)} tensors of other parts, such as"
            f" {printable(others[0])}, are unchanged"
        )


def _refuse(info: Info, problem: str) -> NoReturn:
    raise ModelError(info.file, info.name, problem)
