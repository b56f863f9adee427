"""The two layouts of rotary pairs, and the permutation between them in a head and in a model.

    half          x₀ … x_{d/2−1}  x_{d/2} … x_{d−1}    pair j: channels j and j + d/2
    interleaved   x₀ x_{d/2}  x₁ x_{d/2+1}  …          pair j: channels 2j and 2j + 1

A score is a sum over the channels of a head. If the channels of queries and of keys are permuted
alike, and the rotation changes its layout, every score stays what it was. So the rows of the q and
k projections move, with their biases and the gains of their norms; values, and channels that are
not rotated, stay.

Tensors are recognised by their names, as transformers spells them. A tensor that looks like queries
or keys and is not understood is refused: half a permutation breaks a model.
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

KEY = "posenc.layout"  # key of the metadata of safetensors
OTHER: dict[Layout, Layout] = {"half": "interleaved", "interleaved": "half"}

HOLDS = {  # a module of attention -> queries, keys, values
    "q_proj": "q", "q_b_proj": "q", "query": "q", "wq": "q",
    "k_proj": "k", "kv_a_proj_with_mqa": "k", "key": "k", "wk": "k",
    "v_proj": "v", "kv_b_proj": "v", "value": "v", "wv": "v",
    "query_key_value": "qkv", "qkv_proj": "qkv", "Wqkv": "qkv",
    "q_a_proj": "", "q_a_layernorm": "", "kv_a_layernorm": "",  # latents, of which nothing turns
}  # fmt: skip
NORMS = {
    "q_norm": "q", "q_layernorm": "q", "query_layernorm": "q",
    "k_norm": "k", "k_layernorm": "k", "key_layernorm": "k",
}  # fmt: skip
ATTENTION = ("self_attn", "attn", "attention", "self_attention", "attention.self")
SHARED_KEY = "kv_a_proj_with_mqa"  # a latent, and behind it one key for all heads

EACH, BLOCKS, GROUPS = "q k v, q k v, …", "q q … k … v …", "q q … k v, q q … k v, …"
FUSED = {  # how the heads lie in one tensor
    ("query_key_value", "gpt_neox"): EACH,
    ("query_key_value", "gpt_neox_japanese"): EACH,
    ("query_key_value", "persimmon"): EACH,
    ("qkv_proj", "phi3"): BLOCKS,
    ("Wqkv", "modernbert"): BLOCKS,
}
GATED = ("qwen3_next", "qwen3_5_text", "qwen3_5_moe_text")  # q_proj: q gate, q gate, …

ROW = 64  # bytes of a whole number in a list, about
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
    """Index in the other layout of each channel of a head in layout `to`.

    Of `dim` channels the first `turned` move among themselves, or the last if `trailing`.

    >>> permutation(8, 6, "interleaved")
    [0, 3, 1, 4, 2, 5, 6, 7]
    >>> permutation(8, 6, "half", trailing=True)
    [0, 1, 2, 4, 6, 3, 5, 7]
    """
    if to not in OTHER:
        raise ValueError(f"`to` is a layout: {' or '.join(map(repr, OTHER))}, got {to!r}.")
    if turned % 2 or not 2 <= turned <= dim:
        raise ValueError(
            f"channels turn in pairs: `turned` must be even and from 2 to {dim}, got {turned}."
        )
    start = dim - turned if trailing else 0
    channels = range(start, start + turned)
    # From half: channels j and j + turned/2 become neighbours. Back: even ones, then odd ones.
    if to == "interleaved":
        pairs = zip(channels[: turned // 2], channels[turned // 2 :], strict=True)
        moved = [channel for pair in pairs for channel in pair]
    else:
        moved = [*channels[::2], *channels[1::2]]
    return [*range(start), *moved, *range(start + turned, dim)]


class Moves(NamedTuple):
    """The moves: tensor -> the old index of each of its rows, or of each number of a gain."""

    orders: dict[str, list[int]]
    notes: list[str]


class Place(NamedTuple):
    """A tensor by its name: "model.layers", 7, "q_proj", "weight"."""

    stack: str
    layer: int
    module: str  # "": not in attention, or not known
    leaf: str


def plan(
    infos: Mapping[str, Info], config: Mapping[str, Any], to: Layout, file: str = "config.json"
) -> Moves:
    """Plan the moves that take these tensors from the other layout to `to`.

    Raises ModelError, naming the tensor, where that is not certain. `file` is named in messages.
    """
    model_spec = specify(config, file)
    spec = model_spec.main
    if not spec.rotary:
        raise ModelError(file, "", f"{spec.model!r} turns no channels, so they have no layout")
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
    """The config of one model, which may be nested within that of several."""
    inner = (part for part in config.values() if isinstance(part, dict))
    return next((part for part in (config, *inner) if part.get("model_type") == model), config)


class Projections:
    """The queries and keys of a model, as its config describes them."""

    def __init__(self, spec: Spec, own: Fields):
        self.name, self.heads, self.groups, self.own = spec.model, spec.heads, spec.groups, own
        # Further layers, which predict further tokens
        ahead = own.count("num_nextn_predict_layers", least=0) or 0
        self.needed = len(spec.layers)
        self.layers = [*spec.layers, *[spec.layers[-1]] * min(ahead, 100)]

    def turn(self, layer: int) -> Rotary | None:
        """The rotation of a layer; None where it has none."""
        encoding = self.layers[layer].encoding
        return encoding if isinstance(encoding, Rotary) else None

    def turning(self, module: str, info: Info) -> list[bool]:
        """Test for each head in the rows of a projection whether it is rotated."""
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
            _refuse(info, f"fuses queries and keys in a way not known of {self.name!r}")
        if form == EACH:
            return [True, True, False] * heads
        if form == BLOCKS:
            return [True] * (heads + groups) + [False] * groups
        return ([True] * (heads // groups + 1) + [False]) * groups

    def _falcon(self) -> tuple[str, int]:
        if self.own.flag("new_decoder_architecture"):
            return GROUPS, self.own.count("num_kv_heads") or self.heads
        return (EACH, self.heads) if self.own.flag("multi_query") is False else (BLOCKS, 1)

    def channels(self, module: str, turn: Rotary) -> int:
        """Rows of one of the heads that `turning` counts."""
        if module != SHARED_KEY:
            return turn.dim
        rank = self.own.count("kv_lora_rank")
        if rank is None:
            self.own.fail("kv_lora_rank", "is missing")
        return rank + turn.turned


def _place(name: str) -> Place | None:
    """Take a name apart; None for a tensor outside of the layers."""
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
    """The prefix of the text model's layers, and other tensors that look like queries or keys."""
    places = {name: _place(name) for name in candidates}
    stacks = list(dict.fromkeys(place.stack for place in places.values() if place))
    if composite:
        stacks = [stack for stack in stacks if not NOT_TEXT.search(stack)]
    file = next(iter(infos.values())).file if infos else "weights"
    if not stacks:
        raise ModelError(file, "", "holds no queries and keys of layers")
    if len(stacks) > 1:
        first = ", ".join(stacks[:4])
        raise ModelError(file, "", "holds layers of which the config does not tell", first, "one")
    others = [name for name, place in places.items() if not place or place.stack != stacks[0]]
    if others and not composite:
        _refuse(infos[others[0]], "looks like queries or keys outside of the layers")
    return stacks[0], others


def _order(info: Info, place: Place, model: Projections, to: Layout) -> list[int] | None:
    """The old index of each row, or of each number of a gain; None: the tensor stays as it is."""
    module, leaf = place.module, place.leaf
    if place.layer >= len(model.layers):
        last = len(model.layers) - 1
        raise ModelError(
            info.file, info.name, "is not in a layer of the config", place.layer, f"0 … {last}"
        )
    turn = model.turn(place.layer)
    # A single number is the same for all channels
    if turn is None or info.elements <= 1:
        return None
    if not module:
        _refuse(info, "looks like queries or keys, and posenc does not know what it is")
    if HOLDS.get(module) in ("", "v") or OF_COLUMNS.fullmatch(leaf):
        return None
    if module in NORMS:
        if not GAINS.fullmatch(leaf):
            _refuse(info, "belongs to a norm of queries or keys that posenc does not know")
        heads = model.heads if NORMS[module] == "q" else model.groups
        turning = [True] * (1 if info.elements == turn.dim else heads)
        _check(info, info.elements, len(turning), turn.dim)
        return _moved_rows(turning, permutation(turn.dim, turn.turned, to, turn.trailing))
    turning, dim = model.turning(module, info), model.channels(module, turn)
    trailing = turn.trailing or module == SHARED_KEY
    blocks = bool(SCALES.fullmatch(leaf)) and info.shape[0] != len(turning) * dim
    if not blocks and not SCALES.fullmatch(leaf) and not OF_ROWS.fullmatch(leaf):
        _refuse(info, "is stored so that its rows cannot be moved; convert before quantising")
    if not blocks:
        _check(info, info.shape[0], len(turning), dim)
    check_memory(ROW * len(turning) * dim, info.file, info.name, of="of memory")
    order = _moved_rows(turning, permutation(dim, turn.turned, to, trailing))
    return _check_blocks(info, order, model) if blocks else order


def _moved_rows(turning: Sequence[bool], order: list[int]) -> list[int]:
    """Repeat the permutation of one head in each that is rotated."""
    stay = range(len(order))
    return [
        head * len(order) + channel
        for head, turns in enumerate(turning)
        for channel in (order if turns else stay)
    ]


def _check(info: Info, rows: int, heads: int, dim: int) -> None:
    whole_bytes = info.elements * BITS[info.dtype] % (8 * max(rows, 1)) == 0
    if rows != heads * dim or not whole_bytes:
        needs = f"{heads * dim} rows, {heads} times {dim}"
        raise ModelError(info.file, info.name, "does not fit the config", list(info.shape), needs)


def _check_blocks(info: Info, order: list[int], model: Projections) -> None:
    """Raise ModelError unless every row stays in its block, so that scales of blocks can stay."""
    quantized = model.own.object("quantization_config")
    size = (quantized.counts("weight_block_size", least=1) if quantized else None) or (0,)
    fits = size[0] > 0 and info.shape[0] == ceil(len(order) / size[0])
    if not fits or any(i // size[0] != j // size[0] for i, j in enumerate(order)):
        _refuse(info, "scales blocks of rows that would be torn; convert before quantising")


def _complete(infos: Mapping[str, Info], stack: str, model: Projections) -> None:
    """Raise ModelError unless each rotary layer has queries, keys and values once (LoRA: any).

    Without values of their own, keys would serve as values too, and those must not move.
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
        if model.turn(layer) and has != ["k", "q", "v"]:
            problem = "must have queries, keys and values once each"
            raise ModelError(file, f"{stack}.{layer}", problem, ", ".join(has) or "none")


def _notes(stack: str, others: Sequence[str], model: Projections) -> Iterator[str]:
    if families.family(model.name) is None:
        yield f"{printable(model.name)!r} is not known: heads were taken to lie one after another"
    still = sum(model.turn(layer) is None for layer in range(model.needed))
    if still:
        yield f"{still} of {model.needed} layers turn nothing and are as they were"
    if others:
        yield (
            f"only {printable(stack)} has moved; {len(others)} tensors of other parts, such as"
            f" {printable(others[0])}, are as they were"
        )


def _refuse(info: Info, problem: str) -> NoReturn:
    raise ModelError(info.file, info.name, problem)
