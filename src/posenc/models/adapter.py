"""Plug any encoding into a loaded transformers model, and take it out again.

    with applied(model, ALiBi(heads=8)):
        model.generate(...)

Nothing goes by a model's name: `hf.discovery` measures what it does by position, and a model that
is not itself with its own encoding plugged back is refused. A table such as GPT-2's goes off.

One encoding serves all layers, or a list has one for each. There are two ways to plug it in:

rotation   for RoPE that turns the channels which the model turns, in its layout, and for NoPE: each
           layer is handed cosines and sines made in float64, and the model's own kernel attends
attention  for everything else: the model turns by nothing, its cache holds keys as projected, and
           `posenc.attend` encodes all of them in every step, at their own positions

The second enters the registry of masks too: without a mask of the same name transformers makes
none at all, in silence. The model's masks stay, and Llama 4's temperature unless the encoding has
one; its positional encoding goes, with the scale that DeepSeek's YaRN brought along. Filling that
`attention_mask` shows moves no position.

`model.save_pretrained(folder)` writes the encoding into the config, and what is learned among the
weights; `load(folder)` makes both again. transformers by itself refuses such a folder, since it
would leave the encoding out: the config asks for an attention that names `load`.

A cache belongs to the encoding that it was filled under. Where the frequencies depend on the length
of the text (dynamic NTK, LongRoPE), pass the function length -> RoPE. Each row goes by its own
length; once that asks for other frequencies than its cache was filled with, only a fresh pass is
right, since all layers but the first have cached what they saw through the old ones: refused.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from inspect import signature
from itertools import count
from operator import attrgetter
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from posenc.attention.cache import keeps_keys
from posenc.catalog import create
from posenc.core.encoding import Encoding, Sum, leaves
from posenc.core.positions import sequence
from posenc.encodings.additive.learned import Learned
from posenc.encodings.nope import NoPE
from posenc.encodings.rotary.rope import RoPE
from posenc.encodings.temperature import Temperature
from posenc.models.config.parse import ENTRY
from posenc.models.files.errors import ModelError
from posenc.models.files.folder import find_files, inside
from posenc.models.files.strict import read_json
from posenc.models.hf.discovery import (
    Plugging,
    Site,
    configs,
    discover,
    find_base,
    is_gptj,
    nothing,
    random_tokens,
    refuse,
    row_zero,
    same,
    unturned,
)
from posenc.models.hf.hooks import ByLength, GPTJHook, ModelHook, RunningPass, SiteHook, clear
from posenc.models.hf.loading import load_without_encoding
from posenc.models.hf.registry import NAME, register
from posenc.models.hf.saved import described, restored
from posenc.models.weights import open_weights
from posenc.support.text import printable

__all__ = ["applied", "apply", "load", "remove"]

Applicable = Encoding | ByLength | str  # for one layer; a name is made for the sizes of each layer
ASKS_FOR_LOAD = "posenc: load this folder by posenc.models.adapter.load"  # there is no such
_applied = count()


def apply(model: nn.Module, encoding: Applicable | Sequence[Applicable]) -> None:
    """Replace the positional encoding of `model` until `remove`; its parameters join the model's.

    - `model`: a loaded model of transformers
    - `encoding`: one for all layers, or a list with one for each. Each is an `Encoding`, a name
      such as "alibi", which is made for the sizes of the layer, or a function from the length of
      the text to an encoding

    Raises TypeError for a model that none can be plugged into, ValueError for what does not fit;
    nothing is changed then.

    >>> from transformers import LlamaConfig, LlamaModel
    >>> sizes = dict(hidden_size=32, intermediate_size=32, num_hidden_layers=1, vocab_size=20)
    >>> model = LlamaModel(LlamaConfig(**sizes, num_attention_heads=4))
    >>> apply(model, "alibi")
    >>> model(torch.tensor([[1, 2, 3]])).last_hidden_state.shape
    torch.Size([1, 3, 32])
    """
    base = find_base(model)
    if hasattr(base, NAME):
        raise ValueError("the model has an encoding applied already: call `remove(model)` first.")
    plan = discover(base)
    per_layer = _for_each_site(encoding, base, plan)
    encodings = [
        _fitting(asked, site, base) for asked, site in zip(per_layer, plan.sites, strict=True)
    ]
    by_length = [fitted for fitted in encodings if all(fitted is not asked for asked in per_layer)]
    rotation = not plan.tables and all(
        site.can_turn(fitted) and _can_scale(base, site, fitted)
        for site, fitted in zip(plan.sites, encodings, strict=True)
    )
    if not _is_itself(base, plan, rotation=False):
        refuse(base, "is not itself with its own encoding plugged in")
    rotation = rotation and _is_itself(base, plan, rotation=True)
    _refuse_misplaced(encodings, by_length, rotation)
    _plug(base, plan, per_layer, encodings, by_length=bool(by_length), rotation=rotation)
    base.config.posenc, base.config.attn_implementation = described(per_layer), ASKS_FOR_LOAD


def _plug(
    base: Any,
    plan: Plugging,
    per_layer: Sequence[Any],
    encodings: Sequence[Encoding],
    *,
    by_length: bool,
    rotation: bool,
) -> None:
    """Hook encodings into the model, one for each attention."""
    modules = [asked for asked in per_layer if isinstance(asked, nn.Module)]
    changes = Applied(modules, base.device)
    distinct = [*dict.fromkeys(map(id, per_layer))]
    bottom = encodings[0] if "on_embeddings" in encodings[0].acts_on else None
    record, running = f"{NAME}_{next(_applied)}", None if plan.hands_down else RunningPass()
    names = tuple(signature(base.forward).parameters)
    changes.before(base, ModelHook(names, running, bottom, by_length, rotation, record))
    if running is not None:
        changes.after(base, running.ends)
    if not rotation:
        register()
        for path in configs(base):
            changes.replace(base, f"{path}.config".lstrip("."), "_attn_implementation", NAME)
        for path in plan.rotary:
            changes.instead(base.get_submodule(path), unturned)
    for path in plan.tables:
        table = base.get_submodule(path)
        changes.before(table, row_zero)
        changes.instead(table, nothing)
    for site, asked, fitted in zip(plan.sites, per_layer, encodings, strict=True):
        attention = base.get_submodule(site.path)
        hook = GPTJHook if is_gptj(attention) else SiteHook
        scale = _scale(site, fitted)
        changes.before(attention, hook(
            site, distinct.index(id(asked)), asked, *_divided(fitted, site.key_heads),
            scale, plan.caches_keys, running, rotation, record,
        ))  # fmt: skip
        changes.after(attention, clear)
        if rotation and scale != site.scale:
            name, value = _scale_attribute(attention, scale)
            changes.replace(base, site.path, name, value)
        tuned = hasattr(attention, "attn_temperature_tuning")
        if tuned and any(isinstance(part, Temperature) for part in leaves(fitted)):
            changes.replace(base, site.path, "attn_temperature_tuning", False)
    setattr(base, NAME, changes)


def _unplug(base: Any) -> None:
    getattr(base, NAME).take_out(base)
    delattr(base, NAME)


def _for_each_site(encoding: Any, base: Any, plan: Plugging) -> list[Any]:
    """One encoding for each attention, of one for all, one for each, or one for each layer."""
    if isinstance(encoding, str) or not isinstance(encoding, Sequence | nn.ModuleList):
        return _made([encoding] * len(plan.sites), plan.sites)
    if table := getattr(encoding, "embedding", None):
        raise ValueError(
            "`encoding` must hold the table that the model adds to its embeddings, got encodings of"
            f" its layers beside {table}. Leave the model as it is, add a table with its rows to"
            " the first of them (`table + encodings[0]`), or pass NoPE() to remove the table."
        )
    given, layers = [*encoding], getattr(base.config, "num_hidden_layers", 0)
    # Of a hybrid one may be given for each layer, also for those that do not attend
    if len(given) == layers > len(plan.sites):
        return _made([given[site.index] for site in plan.sites], plan.sites)
    if len(given) != len(plan.sites):
        raise ValueError(
            f"`encoding` has {len(given)} encodings for {len(plan.sites)} layers: give one for"
            " each, or one for all."
        )
    return _made(given, plan.sites)


def _named(name: str, site: Site) -> Encoding:
    """Make an encoding by name for a layer; what rotates pairs the channels as the model does."""
    made = create(name, site.dim, site.heads)
    for part in leaves(made):
        if isinstance(part, RoPE) and isinstance(site.own, RoPE):
            part.layout = site.own.layout
    return made


def _made(given: Sequence[Any], sites: Sequence[Site]) -> list[Any]:
    """Replace names by encodings; layers of equal sizes and the same name share one instance."""
    made: dict[Any, Encoding] = {}
    for name, site in zip(given, sites, strict=True):
        if isinstance(name, str) and (name, site.dim, site.heads) not in made:
            made[name, site.dim, site.heads] = _named(name, site)
    return [
        made[one, site.dim, site.heads] if isinstance(one, str) else one
        for one, site in zip(given, sites, strict=True)
    ]


def _scale(site: Site, encoding: Encoding) -> float:
    """The softmax scale: the encoding's, where it states one, and else the model's."""
    states = any(part.softmax_scale is not None for part in (encoding, *leaves(encoding)))
    scale, usual = encoding.scale(site.dim), site.dim**-0.5
    return scale if states or abs(scale / usual - 1) > 1e-9 else site.plain_scale


def _scale_attribute(attention: Any, scale: float) -> tuple[str, Any]:
    """The attribute by which an attention scales scores, and its value for such a scale."""
    # GPT-J divides scores by this attribute
    if is_gptj(attention):
        return "scale_attn", 1 / scale
    return "scaling", scale


def _can_scale(base: Any, site: Site, encoding: Encoding) -> bool:
    """Test whether the model's own attention can take the scale of an encoding."""
    attention: Any = base.get_submodule(site.path)
    settable = is_gptj(attention) or getattr(attention, "scaling", None) == site.scale
    return settable or _scale(site, encoding) == site.scale


@torch.no_grad()
def _is_itself(base: Any, plan: Plugging, *, rotation: bool) -> bool:
    """Hold the model with its own encoding plugged into it against the model as it was.

    What decodes is compared with a cache. Bamba of transformers 5.23 is not itself when it decodes:
    ours may be what it is without a cache.
    """
    own = [site.own for site in plan.sites]
    if plan.rows is not None:
        table = Learned(len(plan.rows), plan.rows.shape[1])
        table.table.data = plan.rows
        own[0] = Sum(table, own[0])
    ids, training = random_tokens(base), {module: module.training for module in base.modules()}
    base.eval()
    try:
        try:
            expected = [_outputs(base, ids), base(ids, return_dict=True)[0]]
        except Exception as error:
            # The model's own code may raise anything
            words = " ".join(f"{type(error).__name__}: {error}".split())[:200]
            return refuse(base, f"does not run as it is ({words})")
        _plug(base, plan, own, own, by_length=False, rotation=rotation)
        try:
            plugged = _outputs(base, ids)
        except Exception as error:
            # The model's own code may raise anything
            words = " ".join(f"{type(error).__name__}: {error}".split())[:200]
            return refuse(base, f"does not run with its own encoding plugged in ({words})")
        finally:
            _unplug(base)
    finally:
        for module, trained in training.items():
            module.training = trained
    return any(same(plugged, one) for one in expected)


def _outputs(base: Any, ids: Tensor) -> Tensor:
    """The hidden states of a text: of one that decodes, the last token is a step with a cache."""
    first = base(ids[:, :-1], return_dict=True)
    cache = getattr(first, "past_key_values", None)
    if cache is None or isinstance(cache, tuple):
        return base(ids, return_dict=True)[0]
    last = base(ids[:, -1:], past_key_values=cache, return_dict=True)
    return torch.cat((first[0], last[0]), 1)


def load(
    folder: str | Path,
    encoding: Applicable | Sequence[Applicable] | None = None,
    **options: Any,
) -> nn.Module:
    """Load the model that was saved in `folder` with an encoding applied, and apply it again.

    - `folder`: folder that `save_pretrained` wrote
    - `encoding`: an encoding, or a list with one for each layer; None: as the folder describes it.
      It is needed for a class of your own, or a function; learned weights are read from the folder
    - `options`: arguments for `from_pretrained`

    Returns the model. Raises ModelError for a folder that holds no such model, or other weights
    than this one has.

    transformers' own `from_pretrained(folder)` refuses the folder, but not if it is passed
    `attn_implementation="sdpa"`: then it loads the model without the encoding, and no key that a
    config may safely have prevents that.

    >>> from tempfile import TemporaryDirectory
    >>> from transformers import LlamaConfig, LlamaModel
    >>> sizes = dict(hidden_size=32, intermediate_size=32, num_hidden_layers=1, vocab_size=20)
    >>> with TemporaryDirectory() as folder:
    ...     model = LlamaModel(LlamaConfig(**sizes, num_attention_heads=4))
    ...     apply(model, "alibi")
    ...     model.save_pretrained(folder)
    ...     hasattr(load(folder).config, "posenc")
    True
    """
    root = Path(folder)
    file = inside(root, "config.json")
    config = read_json(file)
    entry = config.get(ENTRY)
    if not isinstance(entry, dict):
        raise ModelError(
            file, ENTRY, "names no encoding: load the model by transformers, and `apply` one to it"
        )
    if encoding is None and "refused" in entry:
        raise ModelError(
            file,
            ENTRY,
            f"cannot be made again, as {printable(str(entry['refused']))}: pass it as `encoding`",
        )
    asked: Any = restored(entry, file) if encoding is None else encoding
    model = load_without_encoding(root, file, config.get("architectures"), options)
    base = find_base(model)
    path = next(name for name, module in model.named_modules() if module is base)
    per_layer = asked if isinstance(asked, Sequence | nn.ModuleList) else [asked]
    modules = [encoding for encoding in per_layer if isinstance(encoding, nn.Module)]
    learned = nn.ModuleList(dict.fromkeys(modules))
    prefix = f"{path}.{NAME}.encodings.".removeprefix(".")
    wanted = {prefix + name: tied for name, tied in learned.state_dict(keep_vars=True).items()}
    stored = open_weights(find_files(root)) if wanted else {}
    tensors = {name: stored[name] for name in wanted if name in stored}
    # Tied parameters have one tensor
    loaded = {id(wanted[name]) for name in tensors}
    if lacking := sorted(name for name, tied in wanted.items() if id(tied) not in loaded):
        raise ModelError(file, ENTRY, f"has no weights for {printable(', '.join(lacking))}")
    learned.load_state_dict(
        {name.removeprefix(prefix): tensor for name, tensor in tensors.items()},
        strict=False,
        assign=True,
    )
    apply(model, asked)
    return model


def remove(model: nn.Module) -> None:
    """Remove what `apply` applied, so that the model is what it was.

    - `model`: a model to which an encoding is applied

    Raises ValueError if nothing is applied.

    >>> from transformers import LlamaConfig, LlamaModel
    >>> sizes = dict(hidden_size=32, intermediate_size=32, num_hidden_layers=1, vocab_size=20)
    >>> model = LlamaModel(LlamaConfig(**sizes, num_attention_heads=4))
    >>> apply(model, "alibi")
    >>> remove(model)
    >>> hasattr(model.config, "posenc")
    False
    """
    base = find_base(model)
    if not hasattr(base, NAME):
        raise ValueError("the model has no encoding applied: call `apply(model, encoding)` first.")
    _unplug(base)
    del base.config.posenc, base.config.attn_implementation


@contextmanager
def applied(model: nn.Module, encoding: Applicable | Sequence[Applicable]) -> Iterator[nn.Module]:
    """Apply an encoding within a `with` block, and remove it at the end, also after an error.

    - `model`: a loaded model of transformers
    - `encoding`: one for all layers, or a list with one for each, as in `apply`

    Yields the model. Raises what `apply` raises.

    >>> from transformers import LlamaConfig, LlamaModel
    >>> sizes = dict(hidden_size=32, intermediate_size=32, num_hidden_layers=1, vocab_size=20)
    >>> model = LlamaModel(LlamaConfig(**sizes, num_attention_heads=4))
    >>> with applied(model, "alibi"):
    ...     hasattr(model.config, "posenc")
    True
    >>> hasattr(model.config, "posenc")
    False
    """
    apply(model, encoding)
    try:
        yield model
    finally:
        remove(model)


class Applied(nn.Module):
    """The encodings as a submodule, so that their parameters are the model's, and the way back.

    What it replaced is kept by module paths, so that it is copied and pickled with the model.
    """

    def __init__(self, encodings: list[nn.Module], device: Any):
        super().__init__()
        self.encodings = nn.ModuleList(dict.fromkeys(encodings)).to(device)
        self.hooks: list[Any] = []
        self.replaced: list[tuple[str, str, Any]] = []  # path, attribute, and the value before

    def before(self, module: nn.Module, hook: Any) -> None:
        self.hooks.append(module.register_forward_pre_hook(hook, with_kwargs=True))

    def after(self, module: nn.Module, hook: Any) -> None:
        self.hooks.append(module.register_forward_hook(hook, always_call=True))

    def instead(self, module: nn.Module, hook: Any) -> None:
        self.hooks.append(module.register_forward_hook(hook, with_kwargs=True))

    def replace(self, base: nn.Module, path: str, name: str, value: Any) -> None:
        owner = attrgetter(path)(base)
        self.replaced.append((path, name, getattr(owner, name)))
        setattr(owner, name, value)

    def take_out(self, base: Any) -> None:
        for hook in self.hooks:
            hook.remove()
        for path, name, value in reversed(self.replaced):
            setattr(attrgetter(path)(base), name, value)


def _divided(encoding: Encoding, key_heads: int) -> tuple[Encoding, Encoding]:
    """Split an encoding: what acts on queries and keys alone (its keys can be cached), the rest.

    All of it is the rest where the two are intertwined, or where keys change their shape.
    """
    parts = [part for part in leaves(encoding) if {*part.acts_on} - {"on_embeddings"}]
    turning = [part for part in parts if {*part.acts_on} <= {"on_queries", "on_keys"}]
    here = {"on_scores", "on_values", "by_weight", "on_output"}
    rest = [part for part in parts if {*part.acts_on} <= here]
    if len(turning) + len(rest) < len(parts):
        return NoPE(), encoding
    for part in turning:
        device = next((x.device for x in part.parameters()), None)
        k = torch.zeros(1, key_heads, 1, part.dim or 1, device=device)
        if not keeps_keys(part, k, part.prepare(sequence(1, device=device))):
            return NoPE(), encoding
    return _together(turning), _together(rest)


def _together(parts: list[Encoding]) -> Encoding:
    return parts[0] if len(parts) == 1 else Sum(*parts) if parts else NoPE()


def _fitting(asked: Applicable, site: Site, base: Any) -> Encoding:
    """Check that the encoding fits; of a function of the length, that of a text of one token."""
    if isinstance(asked, type):
        raise TypeError(
            f"`encoding` must be an encoding, got the class {asked.__name__}. Make an instance,"
            f' `{asked.__name__}(…)`, or pass a name such as "alibi".'
        )
    encoding = asked if isinstance(asked, Encoding) or not callable(asked) else asked(1)
    if not isinstance(encoding, Encoding):
        raise TypeError(
            "`encoding` is an `Encoding`, or a function from the length of a text to one, got"
            f" {type(encoding).__name__}."
        )
    model, width = type(base).__name__, base.get_input_embeddings().weight.shape[1]
    for part in leaves(encoding):
        if "on_hidden" in part.acts_on:
            raise ValueError(
                f"{type(part).__name__} reads the input of each layer, which {model} hands to no"
                " encoding: apply one that goes by positions, and use this one in `SelfAttention`."
            )
        values = part.dim if {"on_values", "by_weight", "on_output"} & {*part.acts_on} else 0
        for what, size, has in (
            ("heads", part.heads, site.heads),
            ("channels of a head", part.dim, site.dim),
            ("channels of an embedding", part.width, width),
            ("axes", part.axes, 1),
            ("channels of a value", values, site.values),
        ):
            if size not in (0, has):
                name = type(part).__name__
                raise ValueError(f"this {name} was made for {size} {what}, {model} has {has}.")
    return encoding


def _refuse_misplaced(encodings: list[Encoding], by_length: list[Encoding], rotation: bool) -> None:
    for i, encoding in enumerate(encodings):
        if "on_embeddings" in encoding.acts_on and encoding is not encodings[0]:
            raise ValueError(
                f"{type(encoding).__name__} acts on embeddings, which are below all layers: give it"
                f" to layer 0, not to layer {i}."
            )
    if by_length and not (rotation and all(isinstance(candidate, RoPE) for candidate in by_length)):
        raise ValueError(
            "what depends on the length of the text can only be RoPE that turns the channels which"
            " the model turns, in its layout, with RoPE or NoPE in the other layers."
        )
