"""Replace the positional encoding of a loaded transformers model, or restore the original one.

    with applied(model, ALiBi(heads=8)):
        model.generate(...)

`hf.discovery` measures how the model uses positions, independent of its name. A model whose output
changes when its own encoding is applied this way is rejected. The model's own encoding is removed,
including a learned table such as GPT-2's.

There are two methods:

rotation   for NoPE, and for RoPE on the channels that the model rotates, in its layout: each layer
           receives cosines and sines computed in float64, and the model's own kernel attends
attention  for all other encodings: the model's rotation becomes the identity, its cache stores
           unrotated keys, and `posenc.attend` encodes all keys in every step

The second method also registers a mask function, because transformers silently omits the mask of an
attention without one. The masks of the model are kept, and so is Llama 4's temperature unless the
encoding has one. The softmax factor of DeepSeek's YaRN is removed with the rotation. Padding in
`attention_mask` does not shift positions.

`model.save_pretrained(folder)` writes the encoding to the config, and learned tensors to the
weights; `load(folder)` restores both. transformers alone would load the model without the encoding.
To prevent that, the config names an attention that does not exist, and the name mentions `load`.

A cache is valid only for the encoding under which it was filled. If frequencies depend on the
length of the text (dynamic NTK, LongRoPE), pass the function length → RoPE. Each row uses its own
length. When growth changes the frequencies, cached keys and values of deeper layers become wrong,
so an error is raised.
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
    AdapterPlan,
    AttentionSite,
    configs,
    discover,
    equal_but_rounding,
    evaluating,
    find_base,
    identity_rotation,
    in_one_line,
    is_gptj,
    random_tokens,
    refuse,
    row_zero,
    zero_hook,
)
from posenc.models.hf.hooks import ByLength, GPTJHook, ModelHook, RunningPass, SiteHook, clear
from posenc.models.hf.loading import load_without_encoding
from posenc.models.hf.registry import NAME, register
from posenc.models.hf.saved import described, restored
from posenc.models.weights import open_weights
from posenc.support.text import printable

__all__ = ["applied", "apply", "load", "remove"]

Applicable = Encoding | ByLength | str  # encoding of one layer; a name uses the sizes of the layer
# Name of an attention that does not exist, so that transformers' error names the remedy
LOAD_HINT = "posenc: load this folder by posenc.models.adapter.load"
_applied = count()


def apply(model: nn.Module, encoding: Applicable | Sequence[Applicable]) -> None:
    """Replace the positional encoding of `model` until `remove` is called.

    Parameters of the encoding become parameters of the model.

    - `model`: a loaded model of transformers
    - `encoding`: one for all layers, or a list with one for each. Each is an `Encoding`, a name
      such as "alibi", or a function from the length of the text to an encoding. A name creates an
      encoding of the layer's sizes

    Raises TypeError for a model whose encoding cannot be replaced, and ValueError for an encoding
    that does not match the model. The model is unchanged after an error.

    >>> from transformers import LlamaConfig, LlamaModel
    >>> sizes = dict(hidden_size=32, intermediate_size=32, num_hidden_layers=1, vocab_size=20)
    >>> model = LlamaModel(LlamaConfig(**sizes, num_attention_heads=4))
    >>> apply(model, "alibi")
    >>> model(torch.tensor([[1, 2, 3]])).last_hidden_state.shape
    torch.Size([1, 3, 32])
    """
    base = find_base(model)
    if hasattr(base, NAME):
        raise ValueError(
            "`model` must not have an encoding applied already. Call `remove(model)` first."
        )
    plan = discover(base)
    per_layer = _for_each_site(encoding, base, plan)
    encodings = [
        _checked(given, site, base) for given, site in zip(per_layer, plan.sites, strict=True)
    ]
    by_length = [made for made in encodings if all(made is not given for given in per_layer)]
    rotation = not plan.tables and all(
        site.can_rotate(made) and _can_scale(base, site, made)
        for site, made in zip(plan.sites, encodings, strict=True)
    )
    if not _reproduces(base, plan, rotation=False):
        refuse(base, "has another output with its own encoding applied")
    rotation = rotation and _reproduces(base, plan, rotation=True)
    _refuse_misplaced(encodings, by_length, rotation)
    _install(base, plan, per_layer, encodings, by_length=bool(by_length), rotation=rotation)
    base.config.posenc, base.config.attn_implementation = described(per_layer), LOAD_HINT


def _install(
    base: Any,
    plan: AdapterPlan,
    per_layer: Sequence[Any],
    encodings: Sequence[Encoding],
    *,
    by_length: bool,
    rotation: bool,
) -> None:
    """Register the hooks that apply the encodings, one in each attention module."""
    modules = [given for given in per_layer if isinstance(given, nn.Module)]
    changes = Applied(modules, base.device)
    distinct = [*dict.fromkeys(map(id, per_layer))]
    bottom = encodings[0] if "on_embeddings" in encodings[0].acts_on else None
    record, running = f"{NAME}_{next(_applied)}", None if plan.forwards_arguments else RunningPass()
    names = tuple(signature(base.forward).parameters)
    changes.before(base, ModelHook(names, running, bottom, by_length, rotation, record))
    if running is not None:
        changes.after(base, running.ends)
    if not rotation:
        register()
        for path in configs(base):
            changes.replace(base, f"{path}.config".lstrip("."), "_attn_implementation", NAME)
        for path in plan.rotary:
            changes.instead(base.get_submodule(path), identity_rotation)
    for path in plan.tables:
        table = base.get_submodule(path)
        changes.before(table, row_zero)
        changes.instead(table, zero_hook)
    for site, given, made in zip(plan.sites, per_layer, encodings, strict=True):
        attention = base.get_submodule(site.path)
        hook = GPTJHook if is_gptj(attention) else SiteHook
        scale = _scale(site, made)
        changes.before(attention, hook(
            site, distinct.index(id(given)), given, *_divided(made, site.key_heads),
            scale, plan.caches_keys, running, rotation, record,
        ))  # fmt: skip
        changes.after(attention, clear)
        if rotation and scale != site.scale:
            name, value = _scale_attribute(attention, scale)
            changes.replace(base, site.path, name, value)
        tuned = hasattr(attention, "attn_temperature_tuning")
        if tuned and any(isinstance(part, Temperature) for part in leaves(made)):
            changes.replace(base, site.path, "attn_temperature_tuning", False)
    setattr(base, NAME, changes)


def _uninstall(base: Any) -> None:
    getattr(base, NAME).undo(base)
    delattr(base, NAME)


def _for_each_site(encoding: Any, base: Any, plan: AdapterPlan) -> list[Any]:
    """Return a list with one encoding per attention module, from one encoding or from a list."""
    if isinstance(encoding, str) or not isinstance(encoding, Sequence | nn.ModuleList):
        return _created([encoding] * len(plan.sites), plan.sites)
    if table := getattr(encoding, "embedding", None):
        raise ValueError(
            "`encoding` must include the position table that is added to the embeddings, got a"
            f" list of encodings for layers only. The config of the model has {table}. Add a table"
            " of this size to"
            " the first encoding (`table + encodings[0]`), pass NoPE() to use no table, or leave"
            " the model unmodified."
        )
    given, layers = [*encoding], getattr(base.config, "num_hidden_layers", 0)
    # The list for a hybrid model may also have entries for layers without attention
    if len(given) == layers > len(plan.sites):
        return _created([given[site.index] for site in plan.sites], plan.sites)
    if len(given) != len(plan.sites):
        raise ValueError(
            f"`encoding` must have one encoding for each of {len(plan.sites)} layers, got"
            f" {len(given)}. Pass one encoding for each layer, or a single encoding for all layers."
        )
    return _created(given, plan.sites)


def _named(name: str, site: AttentionSite) -> Encoding:
    """Create the encoding called `name` for a layer, with the pair layout of the model's RoPE."""
    made = create(name, site.dim, site.heads)
    for part in leaves(made):
        if isinstance(part, RoPE) and isinstance(site.own, RoPE):
            part.layout = site.own.layout
    return made


def _created(given: Sequence[Any], sites: Sequence[AttentionSite]) -> list[Any]:
    """Replace names by encodings; layers with the same name and sizes share one encoding."""
    made: dict[Any, Encoding] = {}
    for name, site in zip(given, sites, strict=True):
        if isinstance(name, str) and (name, site.dim, site.heads) not in made:
            made[name, site.dim, site.heads] = _named(name, site)
    return [
        made[one, site.dim, site.heads] if isinstance(one, str) else one
        for one, site in zip(given, sites, strict=True)
    ]


def _scale(site: AttentionSite, encoding: Encoding) -> float:
    """Return the softmax scale of the encoding, or that of the model if the encoding has none."""
    states = any(part.softmax_scale is not None for part in (encoding, *leaves(encoding)))
    scale, usual = encoding.scale(site.dim), site.dim**-0.5
    return scale if states or abs(scale / usual - 1) > 1e-9 else site.plain_scale


def _scale_attribute(attention: Any, scale: float) -> tuple[str, Any]:
    """Return the name and value of the module attribute that sets the softmax scale."""
    # GPT-J divides scores by this attribute
    if is_gptj(attention):
        return "scale_attn", 1 / scale
    return "scaling", scale


def _can_scale(base: Any, site: AttentionSite, encoding: Encoding) -> bool:
    """Test whether the model's own attention can use the softmax scale of an encoding."""
    attention: Any = base.get_submodule(site.path)
    settable = is_gptj(attention) or getattr(attention, "scaling", None) == site.scale
    return settable or _scale(site, encoding) == site.scale


@torch.no_grad()
def _reproduces(base: Any, plan: AdapterPlan, *, rotation: bool) -> bool:
    """Test whether the model's output stays the same when its own encoding is applied by hooks.

    A decoder is compared with a cache. Bamba in transformers 5.23 has another output with a cache
    than without one, so its output without a cache is accepted too.
    """
    own = [site.own for site in plan.sites]
    if plan.rows is not None:
        table = Learned(len(plan.rows), plan.rows.shape[1])
        table.table.data = plan.rows
        own[0] = Sum(table, own[0])
    ids = random_tokens(base)
    with evaluating(base):
        # The model's own code may raise anything
        try:
            expected = [_outputs(base, ids), base(ids, return_dict=True)[0]]
        except Exception as error:
            refuse(base, f"does not run ({in_one_line(error)})")
        _install(base, plan, own, own, by_length=False, rotation=rotation)
        try:
            outputs = _outputs(base, ids)
        except Exception as error:
            refuse(base, f"does not run with its own encoding applied ({in_one_line(error)})")
        finally:
            _uninstall(base)
    return any(equal_but_rounding(outputs, one) for one in expected)


def _outputs(base: Any, ids: Tensor) -> Tensor:
    """Return the hidden states of a text; the last token is decoded with a KV cache if possible."""
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
    """Load a model that was saved with an encoding applied, and apply the encoding again.

    - `folder`: folder that `save_pretrained` wrote
    - `encoding`: an encoding, or a list with one for each layer; None: the one that the folder
      describes. Needed for your own class, or for a function; learned weights are read from the
      folder
    - `options`: arguments for `from_pretrained`

    Returns the model. Raises ModelError if the folder has no model saved in this way, or if weights
    are missing or unexpected.

    transformers' own `from_pretrained(folder)` rejects the folder. With
    `attn_implementation="sdpa"` it loads the model without the encoding, which no key of a config
    can prevent.

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
            file,
            ENTRY,
            "must describe an applied encoding. Load the folder with transformers' from_pretrained,"
            " then call `apply(model, encoding)`",
        )
    if encoding is None and "refused" in entry:
        raise ModelError(
            file,
            ENTRY,
            "describes an encoding that cannot be rebuilt"
            f" ({printable(str(entry['refused']))}). Pass the encoding as `encoding`",
        )
    chosen: Any = restored(entry, file) if encoding is None else encoding
    model = load_without_encoding(root, file, config.get("architectures"), options)
    base = find_base(model)
    path = next(name for name, module in model.named_modules() if module is base)
    per_layer = chosen if isinstance(chosen, Sequence | nn.ModuleList) else [chosen]
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
    apply(model, chosen)
    return model


def remove(model: nn.Module) -> None:
    """Restore the positional encoding that the model had before `apply`.

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
        raise ValueError(
            "`model` must have an encoding applied. Call `apply(model, encoding)` first."
        )
    _uninstall(base)
    del base.config.posenc, base.config.attn_implementation


@contextmanager
def applied(model: nn.Module, encoding: Applicable | Sequence[Applicable]) -> Iterator[nn.Module]:
    """Apply an encoding within a `with` block, and remove it on exit.

    - `model`: a loaded model of transformers
    - `encoding`: one for all layers, or a list with one for each, as in `apply`

    Yields the model. Raises the errors of `apply`.

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
    """Submodule that holds the applied encodings, and the changes that `undo` reverts.

    As a submodule, its parameters belong to the model. Changes refer to modules by their path, so
    that they are copied and pickled with the model.
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

    def undo(self, base: Any) -> None:
        for hook in self.hooks:
            hook.remove()
        for path, name, value in reversed(self.replaced):
            setattr(attrgetter(path)(base), name, value)


def _divided(encoding: Encoding, key_heads: int) -> tuple[Encoding, Encoding]:
    """Split an encoding in two: the parts that only change q and k, such as RoPE, and all others.

    Keys encoded by the first result can be cached. If a part changes both k and the scores, for
    instance, or if encoded keys have another shape, the results are NoPE and `encoding`.
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


def _checked(given: Applicable, site: AttentionSite, base: Any) -> Encoding:
    """Return the encoding `given`, or the result of a function `given(1)`, and check its sizes."""
    if isinstance(given, type):
        raise TypeError(
            f"`encoding` must be an encoding, got the class {given.__name__}. Create an object,"
            f' `{given.__name__}(…)`, or pass a name such as "alibi".'
        )
    encoding = given if isinstance(given, Encoding) or not callable(given) else given(1)
    if not isinstance(encoding, Encoding):
        raise TypeError(
            "`encoding` must be an `Encoding`, or a function that returns an `Encoding` for the"
            f" length of a text, got {type(encoding).__name__}."
        )
    model, width = type(base).__name__, base.get_input_embeddings().weight.shape[1]
    for part in leaves(encoding):
        if "on_hidden" in part.acts_on:
            raise ValueError(
                f"`encoding` must depend on positions only, got {type(part).__name__}, which also"
                f" needs the hidden states of each layer. Use `SelfAttention` instead of {model},"
                f" because {model} does not pass hidden states to encodings."
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
                raise ValueError(
                    f"`encoding` must have {has} {what} for this {model}, got {name} with {size}."
                )
    return encoding


def _refuse_misplaced(encodings: list[Encoding], by_length: list[Encoding], rotation: bool) -> None:
    for i, encoding in enumerate(encodings):
        if "on_embeddings" in encoding.acts_on and encoding is not encodings[0]:
            raise ValueError(
                f"`encoding` must have an encoding that is added to the embeddings only in layer 0,"
                f" got {type(encoding).__name__} in layer {i}. Move {type(encoding).__name__} to"
                " the first place of the list."
            )
    if by_length and not (rotation and all(isinstance(candidate, RoPE) for candidate in by_length)):
        raise ValueError(
            "`encoding` must return RoPE, with the model's number of rotated channels and pair"
            " layout, if it is a function of the text length. Other layers need RoPE or NoPE. To"
            " apply another encoding, pass it directly, without a function."
        )
