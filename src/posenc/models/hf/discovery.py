"""Find a transformers model's attention modules and positional encoding by running the model.

    sites     modules that call transformers' registry of attention, with their arguments
    rotation  which channels are pairs, and the angle of each pair from token to token: from q and k
              compared with q and k when every rotary module returns the identity
    tables    modules whose output depends on positions alone: learned rows, sinusoids
    check     with both removed and attention returning 0, permuted tokens must permute all queries,
              keys and values

A model that fails a step is rejected; the name of the model is never used. All is measured on eight
random tokens in evaluation mode.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from inspect import signature
from itertools import product
from operator import attrgetter
from typing import Any, NoReturn

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
REMEDY = "Pass a decoder or an encoder of transformers 5 that attends through its registry."


@dataclass(frozen=True)
class AttentionSite:
    """One attention module of a model, and the rotation that the model applies before it."""

    path: str  # module path in the model without its head
    index: int  # number of its layer in a cache
    heads: int
    key_heads: int
    dim: int
    values: int  # channels of a value
    scale: float  # softmax scale
    plain_scale: float  # softmax scale without the factor of the model's own YaRN
    names: tuple[str, ...]  # names of the arguments of its forward pass
    own: Encoding = field(default_factory=NoPE)
    rotated: int = 0  # rotated channels of a head
    layout: Layout = "half"
    trailing: bool = False  # True: the last channels are rotated
    apart: int = 0  # last channels, which the model reorders from "interleaved" to "half"
    argument: str = ""  # name of the argument with cosines and sines; "": there is none
    form: str = ""  # format of the cosines and sines, see `_form`
    fewer: bool = False  # True: a narrower table of cosines rotates fewer channels

    def table(self, cos: Tensor, sin: Tensor, dtype: torch.dtype) -> Any:
        """Return cos and sin, (batch, token, pair), in the format of the model's rotation."""
        if self.form == "complex":
            return torch.complex(cos, sin)
        if self.form == "sine first":
            return torch.cat((sin, cos), -1)
        if self.form == "halves":
            cos, sin = torch.cat((cos, cos), -1), torch.cat((sin, sin), -1)
        elif self.form == "repeated":
            cos, sin = cos.repeat_interleave(2, -1), sin.repeat_interleave(2, -1)
        return cos.to(dtype), sin.to(dtype)

    def can_rotate(self, encoding: Encoding) -> bool:
        """Test whether the model's own code can apply `encoding`, with other cosines and sines."""
        if isinstance(encoding, NoPE) or encoding.acts_on == ("on_embeddings",):
            return not self.rotated or bool(self.form)
        if type(encoding) is not RoPE or not self.form:
            return False
        # Angles of 0 can exclude trailing pairs if pairs are adjacent; otherwise the model must
        # accept a narrower table
        some = not self.trailing and (self.fewer or self.layout == "interleaved")
        return (
            encoding.layout == self.layout
            and (encoding.turned == encoding.dim or encoding.trailing == self.trailing)
            and (encoding.turned == self.rotated or (some and encoding.turned < self.rotated))
        )


@dataclass(frozen=True)
class AdapterPlan:
    """Parts of a model that the adapter must replace to apply another encoding."""

    sites: tuple[AttentionSite, ...]
    rotary: tuple[str, ...]  # paths of modules that compute cosines and sines
    tables: tuple[str, ...]  # paths of modules that add rows to embeddings by position
    rows: Tensor | None  # sum of these rows for the first tokens
    # True: the cache contains the keys that are attended to; DeepSeek caches latents instead
    caches_keys: bool
    forwards_arguments: bool  # True: keyword arguments of the model reach its attention modules


def find_base(model: nn.Module) -> Any:
    """Return the model without its head; of a multimodal model, the text model.

    Raises TypeError if this is not a model of transformers, or an encoder-decoder.
    """
    parts = (model, *model.children())
    whole: Any = next((part for part in parts if isinstance(part, PreTrainedModel)), None)
    if whole is None:
        return refuse(model, "is not a model of transformers")
    if getattr(whole.config, "is_encoder_decoder", False):
        refuse(model, "has an encoder and a decoder, whose positions differ")
    decoder = whole.get_decoder()
    return decoder if isinstance(decoder, PreTrainedModel) else whole.base_model


@torch.no_grad()
def discover(base: Any) -> AdapterPlan:
    """Find the modules of a model that depend on positions, and return them as an `AdapterPlan`.

    Raises TypeError if one of the modules cannot be replaced.
    """
    ids = random_tokens(base)
    with _measuring(base):
        try:
            return _discover(base, ids)
        except _Unsuitable as reason:
            return refuse(base, str(reason))
        except Exception as error:
            # The model's own code may raise anything
            return refuse(base, f"does not run on eight tokens ({in_one_line(error)})")


def random_tokens(base: Any) -> Tensor:
    """Return eight different token ids, (1, token), none of them BOS, EOS or padding."""
    try:
        weight = getattr(base.get_input_embeddings(), "weight", None)
    except NotImplementedError:
        weight = None
    if not isinstance(weight, Tensor) or weight.ndim != 2:
        return refuse(base, "has no token embeddings")
    if weight.is_meta:
        raise TypeError(
            f"`model` must have weights, got a {type(base).__name__} on the meta device. Load its"
            " weights first."
        )
    settings = base.config.to_dict()
    named = [value for key, value in settings.items() if key.endswith("token_id")]
    special = {i for value in named for i in (value if isinstance(value, list) else [value])}
    free = torch.tensor([i for i in range(min(len(weight), 1000)) if i not in special])
    order = torch.randperm(len(free), generator=torch.Generator().manual_seed(0))
    return free[order[:TOKENS]].unsqueeze(0).to(weight.device)


def configs(base: nn.Module) -> list[str]:
    """Return one module path for each config object in the model; modules may share a config."""
    owned = ((name, getattr(module, "config", None)) for name, module in base.named_modules())
    paths = {id(config): name for name, config in owned if hasattr(config, "_attn_implementation")}
    return [*paths.values()]


def equal_but_rounding(x: Tensor, other: Tensor) -> bool:
    """Test whether two tensors differ only by a few roundings of their dtype."""
    if x.shape != other.shape:
        return False
    exact = other.double()
    return bool((x.double() - exact).norm() <= torch.finfo(x.dtype).eps ** 0.5 * exact.norm())


class _Unsuitable(Exception):
    """Raised with the reason why the encoding of a model cannot be replaced."""


def refuse(model: nn.Module, why: str) -> NoReturn:
    """Raise TypeError with the reason why the encoding of a model cannot be replaced."""
    raise TypeError(f"{type(model).__name__} {why}, so its encoding cannot be replaced. {REMEDY}")


def in_one_line(error: Exception) -> str:
    """Return the type and the message of an error, at most 200 characters in one line."""
    return " ".join(f"{type(error).__name__}: {error}".split())[:200]


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Put a model into evaluation mode within a `with` block."""
    training = {module: module.training for module in model.modules()}
    model.eval()
    try:
        yield
    finally:
        for module, trained in training.items():
            module.training = trained


@dataclass
class _AttentionCall:
    """Arguments and output of one call of an attention module."""

    module: nn.Module
    q: Tensor
    k: Tensor
    v: Tensor
    scale: float
    out: Tensor


class _Keys(DynamicCache):
    """Key-value cache that records all keys that its `update` method returns."""

    returned: list[Tensor]

    def update(self, *args: Any, **kwargs: Any) -> Any:
        keys, values = super().update(*args, **kwargs)
        self.returned.append(keys)
        return keys, values


@contextmanager
def _measuring(base: Any) -> Iterator[None]:
    """Put a model into evaluation mode, and let posenc compute its attention, in a `with` block."""
    register()
    owners = [attrgetter(path)(base) if path else base for path in configs(base)]
    before = [(owner.config, owner.config._attn_implementation) for owner in owners]
    tuned = [m for m in base.modules() if getattr(m, "attn_temperature_tuning", False)]
    try:
        for config, _ in before:
            config._attn_implementation = NAME
        for module in tuned:
            module.attn_temperature_tuning = False
        with evaluating(base):
            yield
    finally:
        for module in tuned:
            module.attn_temperature_tuning = True
        for config, implementation in before:
            config._attn_implementation = implementation
        for module in base.modules():
            for name in (CALL, "_attn", "_get_embed_positions"):
                vars(module).pop(name, None)


def _run(
    base: Any, ids: Tensor, attends: Callable[..., Tensor], **given: Any
) -> list[_AttentionCall]:
    """Run the model with `attends` as its attention function, and return the recorded calls."""
    calls: list[_AttentionCall] = []

    def call(module: nn.Module, q: Tensor, k: Tensor, v: Tensor, seen: Any, scale: float,
             dropout: float, **more: Any) -> Tensor:  # fmt: skip
        if q.shape[2] != TOKENS or k.shape[2] != TOKENS:
            raise _Unsuitable("attends to inputs other than its tokens")
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
    """Test for the attention of GPT-J, which bypasses the registry and has its own sine table."""
    return hasattr(module, "_attn") and hasattr(module, "_get_embed_positions")


def _gptj_attention(module: Any, q: Tensor, k: Tensor, v: Tensor, seen: Any) -> tuple[Tensor, None]:
    return getattr(module, CALL)(
        q, k, v, seen, 1 / float(module.scale_attn), 0.0, causal=True
    ), None


def _attend(n: int, q: Tensor, k: Tensor, v: Tensor, seen: Any, scale: float, **more: Any) -> Any:
    """Compute attention for queries and keys that the model has rotated already."""
    mask = mask_of(seen, len(q), q.shape[2], k.shape[2], more.pop("causal"))
    return attend(q, k, v, NoPE(), mask=mask, scale=scale, **more)


def _attend_zero(n: int, q: Tensor, k: Tensor, v: Tensor, *rest: Any, **more: Any) -> Tensor:
    """Return zeros as attention output, so that tokens cannot influence each other."""
    return q.new_zeros(*q.shape[:3], v.shape[-1])


def _discover(base: Any, ids: Tensor) -> AdapterPlan:
    names = {module: name for name, module in base.named_modules()}
    rotary = [module for module in names if "Rotary" in type(module).__name__]
    written: list[Any] = []
    with hooked(rotary, lambda module, args, kwargs, out: written.append(out)):
        rotated, keys = _with_cache(base, ids)
    if not rotated:
        raise _Unsuitable("computes attention outside transformers' attention registry")
    first = {call.module: n for n, call in reversed([*enumerate(rotated)])}
    modules = sorted(first, key=first.__getitem__)
    plain, arguments, forwards = _without_rotation(base, ids, rotated, rotary, modules)
    tables, rows = _additive(base, ids, rotary)
    fewer = _accepts_narrow_tables(base, ids, rotary)
    sites: list[AttentionSite] = []
    for order, module in enumerate(modules):
        calls = rotated[first[module]], plain[first[module]]
        argument, n = arguments.get(module, ("", None))
        table = None if n is None else written[n]
        sites.append(_site(base, names[module], order, *calls, written, argument, table, fewer))
    returned = {id(x) for x in keys}
    caches_keys = all(id(call.k) in returned for call in rotated)
    paths = tuple(map(names.__getitem__, rotary)), tuple(map(names.__getitem__, tables))
    return AdapterPlan(tuple(sites), *paths, rows, caches_keys, forwards)


@contextmanager
def hooked(modules: Any, after: Callable[..., Any], before: Any = None) -> Iterator[None]:
    """Register forward hooks `after` and pre-hooks `before` on modules within a `with` block."""
    hooks = [module.register_forward_hook(after, with_kwargs=True) for module in modules]
    if before is not None:
        hooks += [m.register_forward_pre_hook(before, with_kwargs=True) for m in modules]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def identity_rotation(module: Any, args: tuple[Any, ...], kwargs: Any, out: Any) -> Any:
    """Change the output of a rotary module so that the model does not rotate queries and keys."""
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
    """Replace the indices passed to a position table by 0, so that none exceeds its last row."""

    def first(x: Any) -> Any:
        integer = isinstance(x, Tensor) and x.dtype in (torch.int32, torch.int64)
        return torch.zeros_like(x) if integer else x

    return tuple(map(first, args)), {name: first(x) for name, x in kwargs.items()}


def zero_hook(module: Any, args: Any, kwargs: Any, out: Any) -> Any:
    """Replace the output of a position table by zeros; a forward hook."""
    return torch.zeros_like(out)


def _with_cache(base: Any, ids: Tensor) -> tuple[list[_AttentionCall], list[Tensor]]:
    """Run the unmodified model, and return its attention calls and the cached keys.

    Without a cache that the model accepts, there are no cached keys.
    """
    cache: Any = _Keys(config=base.config)
    cache.returned = []
    try:
        calls = _run(base, ids, _attend, past_key_values=cache, use_cache=True)
    except Exception:
        # A recurrent model may need its own class of cache, and its code may raise anything
        return _run(base, ids, _attend), []
    return calls, cache.returned


def _without_rotation(
    base: Any, ids: Tensor, rotated: list[_AttentionCall], rotary: list[Any], modules: list[Any]
) -> tuple[list[_AttentionCall], dict[Any, tuple[str, int]], bool]:
    """Run the model without rotation, and return the queries and keys of each attention call.

    Each attention returns the output of the rotated run, so that the inputs of all layers stay the
    same. The function returns three values: the calls; for each attention module, the name of the
    argument that passes cosines and sines, and the number of this table; and True if keyword
    arguments of the model reach its attention modules.
    """
    written: list[Any] = []
    arguments: dict[Any, tuple[str, int]] = {}
    arrived: list[bool] = []

    def identity(*given: Any) -> Any:
        written.append(identity_rotation(*given))
        return written[-1]

    def find_table(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        arrived.append(kwargs.pop(NAME, None) is not None)
        for name, x in (dict(zip(names_of(module), args, strict=False)) | kwargs).items():
            for n, table in enumerate(written):
                if _first(x) is not None and _first(x) is _first(table):
                    arguments[module] = name, n
        return args, kwargs

    def replayed(n: int, *rest: Any, **more: Any) -> Tensor:
        return rotated[n].out

    with (
        hooked(rotary, identity),
        hooked(modules, lambda *_: None, find_table),
        _gptj_identity(base),
    ):
        try:
            calls = _run(base, ids, replayed, **{NAME: True})
        except TypeError:
            # The model does not accept further keywords
            written, arguments, arrived = [], {}, [False]
            calls = _run(base, ids, replayed)
    return calls, arguments, all(arrived)


def names_of(module: nn.Module) -> tuple[str, ...]:
    """Return the names of the arguments of a module's forward pass."""
    return tuple(signature(module.forward).parameters)


def _first(x: Any) -> Tensor | None:
    """Return `x` if it is a tensor, cos if `x` is a pair (cos, sin), and None otherwise."""
    x = x[0] if isinstance(x, tuple | list) and x else x
    return x if isinstance(x, Tensor) else None


@contextmanager
def _gptj_identity(base: Any) -> Iterator[None]:
    """Replace the sines of GPT-J by 0 and the cosines by 1, so that GPT-J rotates nothing."""
    modules = [module for module in base.modules() if is_gptj(module)]
    for module in modules:
        width = module.rotary_dim or module.embed_dim
        row = torch.arange(width, device=module.out_proj.weight.device) >= width // 2
        module._get_embed_positions = lambda ids, row=row: row.float().expand(*ids.shape, -1)
    yield
    for module in modules:
        del module._get_embed_positions


def _additive(base: Any, ids: Tensor, rotary: list[Any]) -> tuple[list[Any], Tensor | None]:
    """Return the modules that add a row per position to the embeddings, and the sum of the rows.

    Raises _Unsuitable if queries, keys or values depend on positions without them.
    """
    order = torch.randperm(TOKENS, generator=torch.Generator().manual_seed(1)).to(ids.device)
    leaves = [m for m in base.modules() if m not in rotary and not [*m.children()]]
    outs: list[dict[Any, Tensor]] = []

    def record(module: Any, args: Any, kwargs: Any, out: Any) -> None:
        if isinstance(out, Tensor) and out.is_floating_point() and out.ndim > 1:
            if out.shape[-2] == TOKENS and out.numel() == TOKENS * out.shape[-1]:
                outs[-1].setdefault(module, out.view(TOKENS, -1))

    with hooked(rotary, identity_rotation), _gptj_identity(base):
        with hooked(leaves, record):
            for tokens in (ids, ids[:, order]):
                outs.append({})
                _run(base, tokens, _attend_zero)
        tables = [
            module
            for module, out in outs[0].items()
            if torch.equal(out, outs[1].get(module, out[:0])) and (out != out[:1]).any()
        ]
        with hooked(tables, zero_hook, row_zero):
            ordered, permuted = (
                _run(base, tokens, _attend_zero) for tokens in (ids, ids[:, order])
            )
            independent = _equal_up_to_order(ordered, permuted, order)
            if not independent and "position_ids" in names_of(base):
                moved = _run(base, ids, _attend_zero, position_ids=order.unsqueeze(0))
                unchanged = torch.arange(TOKENS, device=ids.device)
                independent = _equal_up_to_order(ordered, moved, unchanged)
    if not independent:
        raise _Unsuitable("uses positions in another way than a rotation or a table")
    rows = [outs[0][module] for module in tables]
    width = base.get_input_embeddings().weight.shape[1]
    if any(row.shape[1] != width for row in rows):
        raise _Unsuitable("has a position table whose width differs from that of its embeddings")
    return tables, torch.stack(rows).sum(0) if rows else None


def _equal_up_to_order(
    calls: list[_AttentionCall], others: list[_AttentionCall], order: Tensor
) -> bool:
    """Test whether two forward passes have equal q, k and v, except for the token order `order`."""
    pairs = zip(calls, others, strict=True)
    return all(
        equal_but_rounding(getattr(call, name)[:, :, order], getattr(other, name))
        for call, other in pairs
        for name in ("q", "k", "v")
    )


def _accepts_narrow_tables(base: Any, ids: Tensor, rotary: list[Any]) -> bool:
    """Test whether the model accepts fewer cosines and sines, and rotates fewer channels then."""

    def narrower(*given: Any) -> Any:
        out = identity_rotation(*given)
        return tuple(x[..., :-2] for x in out) if isinstance(out, tuple) else out

    with hooked(rotary, narrower):
        try:
            return bool(rotary) and bool(_run(base, ids, _attend_zero))
        except (RuntimeError, ValueError, IndexError):
            # Shapes do not match
            return False


def _site(
    base: Any, path: str, order: int, rotated: _AttentionCall, plain: _AttentionCall,
    written: list[Any], argument: str, table: Any, fewer: bool,
) -> AttentionSite:  # fmt: skip
    """Describe one attention module from its calls with and without rotation."""
    module: Any = rotated.module
    dim = rotated.q.shape[-1]
    made = [first.shape[-1] for first in map(_first, written) if first is not None]
    widths = {dim, *made, *(2 * width for width in made)}
    if is_gptj(module):
        widths = {module.rotary_dim or module.embed_dim}
    own, width = _rotation(rotated, plain, sorted(width for width in widths if width <= dim))
    index = getattr(module, "layer_idx", None)
    site = AttentionSite(
        path,
        order if index is None else index,
        rotated.q.shape[1],
        rotated.k.shape[1],
        dim,
        rotated.v.shape[-1],
        rotated.scale,
        _without_yarn(rotated.scale, dim, base.config),
        names_of(module),
        argument=argument,
        fewer=fewer,
    )
    if isinstance(own, RoPE):
        layout, apart = own.layout, 0
        if layout == "half" and (own.trailing or width == dim) and _interleaves(base.config):
            own = RoPE(own.freqs, own.dim, own.gain, "interleaved", own.trailing)
            layout, apart = "interleaved", width
        site = replace(site, rotated=width, layout=layout, trailing=own.trailing, apart=apart)
    own.softmax_scale = rotated.scale / getattr(own, "logit_gain", 1.0)
    return replace(site, own=own, form=_form(module, table, width))


def _rotation(
    rotated: _AttentionCall, plain: _AttentionCall, widths: list[int]
) -> tuple[Encoding, int]:
    """Fit the RoPE that a model applies to q and k; return the RoPE and its channel count."""
    pairs = [(plain.q, rotated.q), (plain.k, rotated.k)]
    for name, (before, _) in zip(("queries", "keys"), pairs, strict=True):
        if not before.any():
            raise _Unsuitable(f"has {name} that are all 0, so no rotation can be measured")
    if all(torch.equal(before, after) for before, after in pairs):
        return NoPE(), 0
    best: tuple[float, Encoding, int] = torch.inf, NoPE(), 0
    for width, layout, trailing in product(widths, ("half", "interleaved"), (False, True)):
        if width < 2 or width % 2 or (trailing and width == rotated.q.shape[-1]):
            continue
        rope = _fitted(pairs, width, layout, trailing)
        at = rope.prepare(sequence(TOKENS, device=plain.q.device))
        error = sum(
            float((rope.on_queries(x.float(), at) - y.float()).norm() / y.float().norm())
            for x, y in pairs
        )
        # Keep the narrower of two widths that fit about equally well
        if error < best[0] * 0.9:
            best = error, rope, width
    if best[0] > 2 * torch.finfo(rotated.q.dtype).eps ** 0.5:
        raise _Unsuitable("changes its queries and keys by more than a rotation of pairs")
    return best[1:]


def _fitted(pairs: Any, width: int, layout: Layout, trailing: bool) -> RoPE:
    """Fit a RoPE of `width` channels to queries and keys before and after the model's rotation."""
    products, before_and_after = torch.zeros(width // 2, device=pairs[0][0].device), []
    for tensors in pairs:
        start = tensors[0].shape[-1] - width if trailing else 0
        parts = (x[..., start : start + width].double() for x in tensors)
        before, after = (torch.complex(*split(x, layout)) for x in parts)
        # The second token is rotated by θ more than the first, which may be rotated already
        products = products + (after * before.conj())[:, :, 1].sum((0, 1))
        before_and_after.append((before.norm(), after.norm()))
    lengths = torch.tensor(before_and_after).sum(0)
    freqs = torch.angle(products).cpu()
    return RoPE(freqs, pairs[0][0].shape[-1], float(lengths[1] / lengths[0]), layout, trailing)


def _interleaves(config: Any) -> bool:
    """Test whether the channels of a pair are adjacent in the weights, according to the config."""
    try:
        return any(
            turn.layout == "interleaved" for turn in specify(config.to_dict()).text_stack.rotary
        )
    except ValueError:
        # posenc does not support this config
        return bool(getattr(config, "rope_interleave", False))


def _without_yarn(scale: float, dim: int, config: Any) -> float:
    """Return the softmax scale divided by the factor that DeepSeek's YaRN contributes."""
    rope = getattr(config, "rope_parameters", None) or {}
    grown, factor = rope.get("mscale_all_dim"), rope.get("factor")
    if grown and factor and abs(scale / yarn_logit_gain(factor, grown) * dim**0.5 - 1) < 1e-6:
        return dim**-0.5
    return scale


def _form(module: Any, table: Any, rotated: int) -> str:
    """Return the name of the format in which a model passes cosines and sines; "" if unknown.

    "complex": cos + i sin; "once": one entry per pair; "halves": all pairs twice, in two blocks;
    "repeated": each pair twice in a row; "sine first": sines and cosines in one tensor.
    """
    if is_gptj(module):
        return "sine first"
    first = _first(table)
    if first is None or first.ndim != 3:
        return ""
    width = first.shape[-1]
    if isinstance(table, Tensor):
        return "complex" if first.is_complex() and rotated in (0, 2 * width) else ""
    if len(table) != 2:
        return ""
    if 2 * width == rotated:
        return "once"
    if width != rotated and rotated:
        return ""
    if torch.equal(first[..., : width // 2], first[..., width // 2 :]):
        return "halves"
    return "repeated" if torch.equal(first[..., ::2], first[..., 1::2]) else ""
