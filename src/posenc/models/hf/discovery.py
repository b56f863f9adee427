"""Discover where a transformers model attends and how it encodes positions, by running it.

    sites     the modules that call transformers' registry of attention, and what they hand to it
    rotation  q and k as they arrive, against q and k with every rotary module at the identity:
              which channels are pairs, and how far each pair turns from token to token
    tables    modules whose output follows positions alone: learned rows, sines
    blind     with both off and attention silent, permuted tokens permute all queries and keys

A model of which one of these does not hold is refused; nothing is looked up by a model's name.
All is measured on eight random tokens, in evaluation mode.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from inspect import signature
from itertools import product
from operator import attrgetter
from typing import Any

import torch
from torch import Tensor, nn
from transformers.cache_utils import DynamicCache
from transformers.modeling_utils import PreTrainedModel

from posenc.attention.attend import attend
from posenc.core.encoding import Encoding
from posenc.core.frequencies import Layout, split
from posenc.core.positions import sequence
from posenc.encodings.nope import NoPE
from posenc.encodings.rotary.extension import yarn_logit_gain
from posenc.encodings.rotary.rope import RoPE
from posenc.models.config.parse import specify
from posenc.models.hf.masks import mask_of
from posenc.models.hf.registry import CALL, NAME, register

TOKENS = 8
PASS = "pass a decoder or an encoder of transformers 5 that attends through its registry."


@dataclass(frozen=True)
class Site:
    """One attention of a model, and its own rotation."""

    path: str  # path in the model without its head
    index: int  # number of its layer in a cache
    heads: int
    key_heads: int
    dim: int
    values: int  # channels of a value
    scale: float  # softmax scale
    plain_scale: float  # the same without what a YaRN of the model's own brings along
    names: tuple[str, ...]  # names of the arguments of its forward pass
    own: Encoding = field(default_factory=NoPE)
    turned: int = 0  # channels of a head that turn
    layout: Layout = "half"
    trailing: bool = False  # True: the last channels turn
    apart: int = 0  # last channels that the model has taken apart, from neighbours into halves
    argument: str = ""  # argument that hands it cosines and sines; "": none does
    form: str = ""  # how they are written
    fewer: bool = False  # only as many channels turn as there are cosines

    def table(self, cos: Tensor, sin: Tensor, dtype: torch.dtype) -> Any:
        """Write the table that the model's rotation takes, from (batch, token, pair)."""
        if self.form == "complex":
            return torch.complex(cos, sin)
        if self.form == "sine first":
            return torch.cat((sin, cos), -1)
        if self.form == "halves":
            cos, sin = torch.cat((cos, cos), -1), torch.cat((sin, sin), -1)
        elif self.form == "repeated":
            cos, sin = cos.repeat_interleave(2, -1), sin.repeat_interleave(2, -1)
        return cos.to(dtype), sin.to(dtype)

    def can_turn(self, encoding: Encoding) -> bool:
        """Test whether the model's own rotation can do what the encoding does to q and k."""
        if isinstance(encoding, NoPE) or encoding.acts_on == ("on_embeddings",):
            return not self.turned or bool(self.form)
        if type(encoding) is not RoPE or not self.form:
            return False
        # Pairs of neighbours can be left unturned one by one; halves only where fewer may turn.
        some = not self.trailing and (self.fewer or self.layout == "interleaved")
        return (
            encoding.layout == self.layout
            and (encoding.turned == encoding.dim or encoding.trailing == self.trailing)
            and (encoding.turned == self.turned or (some and encoding.turned < self.turned))
        )


@dataclass(frozen=True)
class Plugging:
    """How encodings are plugged into one model."""

    sites: tuple[Site, ...]
    rotary: tuple[str, ...]  # paths of modules that make cosines and sines
    tables: tuple[str, ...]  # paths of modules that add to embeddings by position
    rows: Tensor | None  # what they add to the first tokens
    # True: keys are cached as they are attended to; DeepSeek caches what they are made of
    caches_keys: bool
    hands_down: bool  # arguments of the model reach its attentions


def find_base(model: nn.Module) -> Any:
    """Return the model without its head, the text's where it has several. Raises TypeError."""
    parts = (model, *model.children())
    whole: Any = next((part for part in parts if isinstance(part, PreTrainedModel)), None)
    if whole is None:
        return refuse(model, "is no model of transformers")
    if getattr(whole.config, "is_encoder_decoder", False):
        refuse(model, "has an encoder and a decoder, each with positions of its own")
    decoder = whole.get_decoder()
    return decoder if isinstance(decoder, PreTrainedModel) else whole.base_model


@torch.no_grad()
def discover(base: Any) -> Plugging:
    """Measure where the model attends and what it does by position. Raises TypeError."""
    ids = random_tokens(base)
    with _measuring(base):
        try:
            return _discover(base, ids)
        except _Unsuitable as reason:
            return refuse(base, str(reason))
        except Exception as error:
            # The model's own code may raise anything
            words = " ".join(f"{type(error).__name__}: {error}".split())[:200]
            return refuse(base, f"does not run on eight tokens ({words})")


def random_tokens(base: Any) -> Tensor:
    """Return eight different tokens, (1, token), none of which the config gives a meaning."""
    try:
        weight = getattr(base.get_input_embeddings(), "weight", None)
    except NotImplementedError:
        weight = None
    if not isinstance(weight, Tensor) or weight.ndim != 2:
        return refuse(base, "embeds no tokens")
    if weight.is_meta:
        raise TypeError(
            f"{type(base).__name__} has no weights on the meta device: load them first."
        )
    settings = base.config.to_dict()
    named = [value for key, value in settings.items() if key.endswith("token_id")]
    special = {i for value in named for i in (value if isinstance(value, list) else [value])}
    free = torch.tensor([i for i in range(min(len(weight), 1000)) if i not in special])
    order = torch.randperm(len(free), generator=torch.Generator().manual_seed(0))
    return free[order[:TOKENS]].unsqueeze(0).to(weight.device)


def configs(base: nn.Module) -> list[str]:
    """Paths of modules whose configs are all that the model holds, each of them once."""
    held = {id(module.config): name for name, module in base.named_modules() if _has_config(module)}
    return [*held.values()]


def same(x: Tensor, other: Tensor) -> bool:
    """Test whether two tensors differ by no more than a few roundings of their dtype."""
    if x.shape != other.shape:
        return False
    exact = other.double()
    return bool((x.double() - exact).norm() <= torch.finfo(x.dtype).eps ** 0.5 * exact.norm())


class _Unsuitable(Exception):
    """The reason why no encoding can be plugged into a model."""


def refuse(model: nn.Module, why: str) -> Any:
    """Raise the TypeError of a model that no encoding can be plugged into."""
    raise TypeError(f"{type(model).__name__} {why}, so no encoding can be plugged into it: {PASS}")


def _has_config(module: Any) -> bool:
    return hasattr(getattr(module, "config", None), "_attn_implementation")


@dataclass
class _AttentionCall:
    """What one attention was called with."""

    module: nn.Module
    q: Tensor
    k: Tensor
    v: Tensor
    scale: float
    out: Tensor


class _Keys(DynamicCache):
    """A cache that notes the keys that it hands out."""

    handed_out: list[Tensor]

    def update(self, *args: Any, **kwargs: Any) -> Any:
        keys, values = super().update(*args, **kwargs)
        self.handed_out.append(keys)
        return keys, values


@contextmanager
def _measuring(base: Any) -> Iterator[None]:
    """Attend by posenc's entry in the registry, in evaluation mode; restore all at the end."""
    register()
    training = {module: module.training for module in base.modules()}
    owners = [attrgetter(path)(base) if path else base for path in configs(base)]
    before = [(owner.config, owner.config._attn_implementation) for owner in owners]
    tuned = [m for m in base.modules() if getattr(m, "attn_temperature_tuning", False)]
    try:
        base.eval()
        for config, _ in before:
            config._attn_implementation = NAME
        for module in tuned:
            module.attn_temperature_tuning = False
        yield
    finally:
        for module in tuned:
            module.attn_temperature_tuning = True
        for config, implementation in before:
            config._attn_implementation = implementation
        for module, trained in training.items():
            module.training = trained
            for name in (CALL, "_attn", "_get_embed_positions"):
                vars(module).pop(name, None)


def _run(
    base: Any, ids: Tensor, attends: Callable[..., Tensor], **given: Any
) -> list[_AttentionCall]:
    """Run the model with `attends` in place of its attentions, and list their calls."""
    calls: list[_AttentionCall] = []

    def call(module: nn.Module, q: Tensor, k: Tensor, v: Tensor, seen: Any, scale: float,
             dropout: float, **more: Any) -> Tensor:  # fmt: skip
        if q.shape[2] != TOKENS or k.shape[2] != TOKENS:
            raise _Unsuitable("does not attend from token to token")
        out = attends(len(calls), q, k, v, seen, scale, **more)
        calls.append(_AttentionCall(module, q, k, v, scale, out))
        return out

    for module in base.modules():
        setattr(module, CALL, partial(call, module))
        if is_gptj(module):
            module._attn = partial(_gptj_attention, module)
    accepted = signature(base.forward).parameters
    options = {"use_cache": False, "return_dict": True} | given
    base(ids, **{name: x for name, x in options.items() if name in accepted or name == NAME})
    return calls


def is_gptj(module: Any) -> bool:
    """Test for the attention of GPT-J, which is in no registry and reads a table of its own."""
    return hasattr(module, "_attn") and hasattr(module, "_get_embed_positions")


def _gptj_attention(module: Any, q: Tensor, k: Tensor, v: Tensor, seen: Any) -> tuple[Tensor, None]:
    return getattr(module, CALL)(
        q, k, v, seen, 1 / float(module.scale_attn), 0.0, causal=True
    ), None


def _plainly(n: int, q: Tensor, k: Tensor, v: Tensor, seen: Any, scale: float, **more: Any) -> Any:
    """Attend as the model does, its rotation being in q and k already."""
    mask = mask_of(seen, len(q), q.shape[2], k.shape[2], more.pop("causal"))
    return attend(q, k, v, NoPE(), mask=mask, scale=scale, **more)


def _silently(n: int, q: Tensor, k: Tensor, v: Tensor, *rest: Any, **more: Any) -> Tensor:
    return q.new_zeros(*q.shape[:3], v.shape[-1])


def _discover(base: Any, ids: Tensor) -> Plugging:
    names = {module: name for name, module in base.named_modules()}
    rotary = [module for module in names if "Rotary" in type(module).__name__]
    written: list[Any] = []
    with _hooked(rotary, lambda module, args, kwargs, out: written.append(out)):
        turned, keys = _with_cache(base, ids)
    if not turned:
        raise _Unsuitable("attends by code of its own")
    first = {call.module: n for n, call in reversed([*enumerate(turned)])}
    modules = sorted(first, key=first.__getitem__)
    plain, arguments, down = _unturned(base, ids, turned, rotary, modules)
    tables, rows = _additive(base, ids, rotary)
    fewer = _takes_fewer(base, ids, rotary)
    sites: list[Site] = []
    for order, module in enumerate(modules):
        calls = turned[first[module]], plain[first[module]]
        argument, n = arguments.get(module, ("", None))
        table = None if n is None else written[n]
        sites.append(_site(base, names[module], order, *calls, written, argument, table, fewer))
    handed_out = {id(x) for x in keys}
    caches_keys = all(id(call.k) in handed_out for call in turned)
    paths = tuple(map(names.__getitem__, rotary)), tuple(map(names.__getitem__, tables))
    return Plugging(tuple(sites), *paths, rows, caches_keys, down)


@contextmanager
def _hooked(modules: Any, after: Callable[..., Any], before: Any = None) -> Iterator[None]:
    """Call `after` after each of the modules, and `before` before."""
    hooks = [module.register_forward_hook(after, with_kwargs=True) for module in modules]
    if before is not None:
        hooks += [m.register_forward_pre_hook(before, with_kwargs=True) for m in modules]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def unturned(module: Any, args: tuple[Any, ...], kwargs: Any, out: Any) -> Any:
    """Hook: the identity in place of what a rotary module gives, a table or what it has turned."""
    if isinstance(out, Tensor):
        return torch.ones_like(out) if out.is_complex() else torch.zeros_like(out)
    if not (isinstance(out, tuple) and len(out) == 2):
        return out
    inputs = [*args, *kwargs.values()][:2]
    shapes = [x.shape if isinstance(x, Tensor) and x.is_floating_point() else None for x in inputs]
    if shapes == [x.shape for x in out]:
        return tuple(inputs)
    return torch.ones_like(out[0]), torch.zeros_like(out[1])


def row_zero(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Hook: ask a table for its first row alone, since it may have fewer than the text is long."""
    first = lambda x: torch.zeros_like(x) if _counts(x) else x  # noqa: E731
    return tuple(map(first, args)), {name: first(x) for name, x in kwargs.items()}


def nothing(module: Any, args: Any, kwargs: Any, out: Any) -> Any:
    """Hook: zeros in place of what a table gives."""
    return torch.zeros_like(out)


def _counts(x: Any) -> bool:
    return isinstance(x, Tensor) and x.dtype in (torch.int32, torch.int64)


def _with_cache(base: Any, ids: Tensor) -> tuple[list[_AttentionCall], list[Tensor]]:
    """Run the model as it is, with a cache if it takes one; the keys that this hands out."""
    cache: Any = _Keys(config=base.config)
    cache.handed_out = []
    try:
        calls = _run(base, ids, _plainly, past_key_values=cache, use_cache=True)
    except Exception:
        # A recurrent model may have a cache of its own, whose code may raise anything
        return _run(base, ids, _plainly), []
    return calls, cache.handed_out


def _unturned(
    base: Any, ids: Tensor, turned: list[_AttentionCall], rotary: list[Any], modules: list[Any]
) -> tuple[list[_AttentionCall], dict[Any, tuple[str, int]], bool]:
    """Run with the identity as rotation, and outputs of attention as they were with the model's.

    Returns the calls, the argument by which each attention gets which table, and whether an
    argument of the model comes down to its attentions.
    """
    written: list[Any] = []
    arguments: dict[Any, tuple[str, int]] = {}
    arrived: list[bool] = []

    def still(*given: Any) -> Any:
        written.append(unturned(*given))
        return written[-1]

    def look(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        arrived.append(kwargs.pop(NAME, None) is not None)
        for name, x in (dict(zip(names_of(module), args, strict=False)) | kwargs).items():
            for n, table in enumerate(written):
                if _first(x) is not None and _first(x) is _first(table):
                    arguments[module] = name, n
        return args, kwargs

    def forced(n: int, *rest: Any, **more: Any) -> Tensor:
        return turned[n].out

    with _hooked(rotary, still), _hooked(modules, lambda *_: None, look), _gptj_unturned(base):
        try:
            calls = _run(base, ids, forced, **{NAME: True})
        except TypeError:
            # It does not take this keyword
            written, arguments, arrived = [], {}, [False]
            calls = _run(base, ids, forced)
    return calls, arguments, all(arrived)


def names_of(module: nn.Module) -> tuple[str, ...]:
    """The names of the arguments of its forward pass."""
    return tuple(signature(module.forward).parameters)


def _first(x: Any) -> Tensor | None:
    """The first tensor of a rotary table, by whose identity the table is known again."""
    x = x[0] if isinstance(x, tuple | list) and x else x
    return x if isinstance(x, Tensor) else None


@contextmanager
def _gptj_unturned(base: Any) -> Iterator[None]:
    modules = [module for module in base.modules() if is_gptj(module)]
    for module in modules:
        width = module.rotary_dim or module.embed_dim
        row = torch.arange(width, device=module.out_proj.weight.device) >= width // 2
        module._get_embed_positions = lambda ids, row=row: row.float().expand(*ids.shape, -1)
    yield
    for module in modules:
        del module._get_embed_positions


def _additive(base: Any, ids: Tensor, rotary: list[Any]) -> tuple[list[Any], Tensor | None]:
    """Find what follows positions alone below the layers; raise where anything else does."""
    order = torch.randperm(TOKENS, generator=torch.Generator().manual_seed(1)).to(ids.device)
    leaves = [m for m in base.modules() if m not in rotary and not [*m.children()]]
    outs: list[dict[Any, Tensor]] = []

    def note(module: Any, args: Any, kwargs: Any, out: Any) -> None:
        if isinstance(out, Tensor) and out.is_floating_point() and out.ndim > 1:
            if out.shape[-2] == TOKENS and out.numel() == TOKENS * out.shape[-1]:
                outs[-1].setdefault(module, out.view(TOKENS, -1))

    with _hooked(rotary, unturned), _gptj_unturned(base):
        with _hooked(leaves, note):
            for tokens in (ids, ids[:, order]):
                outs.append({})
                _run(base, tokens, _silently)
        tables = [
            module
            for module, out in outs[0].items()
            if torch.equal(out, outs[1].get(module, out[:0])) and (out != out[:1]).any()
        ]
        with _hooked(tables, nothing, row_zero):
            straight, mixed = (_run(base, tokens, _silently) for tokens in (ids, ids[:, order]))
            blind = _alike(straight, mixed, order)
            if not blind and "position_ids" in names_of(base):
                moved = _run(base, ids, _silently, position_ids=order.unsqueeze(0))
                blind = _alike(straight, moved, torch.arange(TOKENS, device=ids.device))
    if not blind:
        raise _Unsuitable("reads positions elsewhere than in a rotation or a table")
    rows = [outs[0][module] for module in tables]
    width = base.get_input_embeddings().weight.shape[1]
    if any(row.shape[1] != width for row in rows):
        raise _Unsuitable("adds positions of another width than its embeddings have")
    return tables, torch.stack(rows).sum(0) if rows else None


def _alike(calls: list[_AttentionCall], others: list[_AttentionCall], order: Tensor) -> bool:
    """Test whether two passes have the same queries, keys and values but for the order."""
    pairs = zip(calls, others, strict=True)
    return all(
        same(getattr(call, name)[:, :, order], getattr(other, name))
        for call, other in pairs
        for name in ("q", "k", "v")
    )


def _takes_fewer(base: Any, ids: Tensor, rotary: list[Any]) -> bool:
    """Test whether the model's rotation turns only as many channels as there are cosines."""

    def narrower(*given: Any) -> Any:
        out = unturned(*given)
        return tuple(x[..., :-2] for x in out) if isinstance(out, tuple) else out

    with _hooked(rotary, narrower):
        try:
            return bool(rotary) and bool(_run(base, ids, _silently))
        except (RuntimeError, ValueError, IndexError):
            # Shapes do not fit
            return False


def _site(
    base: Any, path: str, order: int, turned: _AttentionCall, plain: _AttentionCall,
    written: list[Any], argument: str, table: Any, fewer: bool,
) -> Site:  # fmt: skip
    module: Any = turned.module
    dim = turned.q.shape[-1]
    made = [first.shape[-1] for first in map(_first, written) if first is not None]
    widths = {dim, *made, *(2 * width for width in made)}
    if is_gptj(module):
        widths = {module.rotary_dim or module.embed_dim}
    own, turns = _rotation(turned, plain, sorted(width for width in widths if width <= dim))
    index = getattr(module, "layer_idx", None)
    site = Site(
        path,
        order if index is None else index,
        turned.q.shape[1],
        turned.k.shape[1],
        dim,
        turned.v.shape[-1],
        turned.scale,
        _without_yarn(turned.scale, dim, base.config),
        names_of(module),
        argument=argument,
        fewer=fewer,
    )
    if isinstance(own, RoPE):
        layout, apart = own.layout, 0
        if layout == "half" and (own.trailing or turns == dim) and _interleaves(base.config):
            own, layout, apart = _rewritten(own, "interleaved"), "interleaved", turns
        site = replace(site, turned=turns, layout=layout, trailing=own.trailing, apart=apart)
    own.softmax_scale = turned.scale / getattr(own, "logit_gain", 1.0)
    return replace(site, own=own, form=_form(module, table, turns))


def _rotation(
    turned: _AttentionCall, plain: _AttentionCall, widths: list[int]
) -> tuple[Encoding, int]:
    """Read from queries and keys before and after what turns them; and how many channels do."""
    pairs = [(plain.q, turned.q), (plain.k, turned.k)]
    for name, (before, _) in zip(("queries", "keys"), pairs, strict=True):
        if not before.any():
            raise _Unsuitable(f"has {name} that are all 0, so that no rotation can be measured")
    if all(torch.equal(before, after) for before, after in pairs):
        return NoPE(), 0
    best: tuple[float, Encoding, int] = torch.inf, NoPE(), 0
    for width, layout, trailing in product(widths, ("half", "interleaved"), (False, True)):
        if width < 2 or width % 2 or (trailing and width == turned.q.shape[-1]):
            continue
        rope = _fitted(pairs, width, layout, trailing)
        at = rope.prepare(sequence(TOKENS, device=plain.q.device))
        error = sum(
            float((rope.on_queries(x.float(), at) - y.float()).norm() / y.float().norm())
            for x, y in pairs
        )
        # Of widths that fit equally well the narrower counts
        if error < best[0] * 0.9:
            best = error, rope, width
    if best[0] > 2 * torch.finfo(turned.q.dtype).eps ** 0.5:
        raise _Unsuitable("turns its queries and keys by more than pairs of channels")
    return best[1:]


def _fitted(pairs: Any, width: int, layout: Layout, trailing: bool) -> RoPE:
    """The rotation of so many channels that comes closest."""
    products, before_and_after = torch.zeros(width // 2, device=pairs[0][0].device), []
    for tensors in pairs:
        start = tensors[0].shape[-1] - width if trailing else 0
        parts = (x[..., start : start + width].double() for x in tensors)
        before, after = (torch.complex(*split(x, layout)) for x in parts)
        # the second token has turned once more than the first, which may have turned already
        products = products + (after * before.conj())[:, :, 1].sum((0, 1))
        before_and_after.append((before.norm(), after.norm()))
    lengths = torch.tensor(before_and_after).sum(0)
    freqs = torch.angle(products).cpu()
    return RoPE(freqs, pairs[0][0].shape[-1], float(lengths[1] / lengths[0]), layout, trailing)


def _rewritten(rope: RoPE, layout: Layout) -> RoPE:
    return RoPE(rope.freqs, rope.dim, rope.gain, layout, rope.trailing)


def _interleaves(config: Any) -> bool:
    """Test whether the config says that the channels of a pair are neighbours in the weights."""
    try:
        return any(turn.layout == "interleaved" for turn in specify(config.to_dict()).main.rotary)
    except ValueError:
        # posenc does not read this config
        return bool(getattr(config, "rope_interleave", False))


def _without_yarn(scale: float, dim: int, config: Any) -> float:
    """The scale of a softmax without the factor that DeepSeek's YaRN brings along."""
    rope = getattr(config, "rope_parameters", None) or {}
    grown, factor = rope.get("mscale_all_dim"), rope.get("factor")
    if grown and factor and abs(scale / yarn_logit_gain(factor, grown) * dim**0.5 - 1) < 1e-6:
        return dim**-0.5
    return scale


def _form(module: Any, table: Any, turned: int) -> str:
    """How cosines and sines are written in a table that an attention is handed; "": otherwise."""
    if is_gptj(module):
        return "sine first"
    first = _first(table)
    if first is None or first.ndim != 3:
        return ""
    width = first.shape[-1]
    if isinstance(table, Tensor):
        return "complex" if first.is_complex() and turned in (0, 2 * width) else ""
    if len(table) != 2:
        return ""
    if 2 * width == turned:
        return "once"
    if width != turned and turned:
        return ""
    if torch.equal(first[..., : width // 2], first[..., width // 2 :]):
        return "halves"
    return "repeated" if torch.equal(first[..., ::2], first[..., 1::2]) else ""
