"""Plug any encoding into a loaded transformers model, and take it out again.

    with applied(model, ALiBi(heads=8)):
        model.generate(...)

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
from torch import nn

from posenc.attention.cache import keeps_keys
from posenc.core.encoding import Encoding
from posenc.core.positions import sequence
from posenc.core.sum import Sum, leaves
from posenc.encodings.nope import NoPE
from posenc.encodings.rotary.rope import RoPE
from posenc.encodings.temperature import Temperature
from posenc.models.config.parse import ENTRY
from posenc.models.files.errors import ModelError, printable
from posenc.models.files.folder import find_files, inside
from posenc.models.files.strict import read_json
from posenc.models.hf.hooks import (
    NAME,
    ByLength,
    GPTJHook,
    LayerHook,
    ModelHook,
    NoRotation,
    clear_gptj,
    register,
)
from posenc.models.hf.loading import load_without_encoding
from posenc.models.hf.saved import described, restored
from posenc.models.hf.supported import SupportedModel, find_supported
from posenc.models.weights import open_weights

Applicable = Encoding | ByLength  # to one layer
ASKS_FOR_LOAD = "posenc: load this folder by posenc.models.adapter.load"  # there is no such
_applied = count()


def apply(model: nn.Module, encoding: Applicable | Sequence[Applicable]) -> None:
    """Replace the positional encoding of `model` until `remove`; its parameters join the model's.

    Raises TypeError for unknown models, ValueError for what does not fit; nothing is changed then.
    """
    base, supported = find_supported(model)
    if hasattr(base, NAME):
        raise ValueError("the model has an encoding applied already: call `remove(model)` first.")
    layers = getattr(base, supported.layers)
    attentions = [getattr(layer, supported.attention) for layer in layers]
    per_layer: list[Any] = (
        [*encoding] if isinstance(encoding, Sequence | nn.ModuleList) else [encoding] * len(layers)
    )
    if len(per_layer) != len(layers):
        raise ValueError(
            f"`encoding` has {len(per_layer)} encodings for {len(layers)} layers: give one for"
            " each, or one for all."
        )
    pairs = [*zip(per_layer, attentions, strict=True)]
    encodings = [_fitting(asked, attention, base, supported) for asked, attention in pairs]
    rotation = all(map(supported.can_turn, encodings, attentions))
    by_length = [fitted for fitted in encodings if all(fitted is not asked for asked in per_layer)]
    _refuse_misplaced(encodings, by_length, rotation)
    distinct = [*dict.fromkeys(map(id, per_layer))]
    key_heads = map(supported.key_heads, attentions)
    parts = [*map(_divided, encodings, key_heads)]
    record = f"{NAME}_{next(_applied)}"
    bottom = encodings[0] if "on_embeddings" in encodings[0].acts_on else None
    names = tuple(signature(base.forward).parameters)
    changes = Applied([asked for asked in per_layer if isinstance(asked, nn.Module)], base.device)
    changes.before(base, ModelHook(names, bottom, bool(by_length), rotation, record))
    if hasattr(base, "rotary_emb"):
        base.rotary_emb = NoRotation(base.rotary_emb)
    if not rotation:
        register()
        changes.replace(base, "config", "_attn_implementation", NAME)
    for i, (layer, attention) in enumerate(zip(layers, attentions, strict=True)):
        gptj = hasattr(attention, "scale_attn")
        turned = supported.turning(attention)
        hook = (GPTJHook if gptj else LayerHook)(
            i, distinct.index(id(per_layer[i])), per_layer[i], *parts[i],
            supported, turned, rotation, record,
        )  # fmt: skip
        changes.before(attention if gptj else layer, hook)
        if gptj:
            changes.after(attention, clear_gptj)
        path = f"{supported.layers}.{i}.{supported.attention}"
        changes.settle(base, path, encodings[i], supported)
    setattr(base, NAME, changes)
    base.config.posenc, base.config.attn_implementation = described(per_layer), ASKS_FOR_LOAD


def load(
    folder: str | Path,
    encoding: Applicable | Sequence[Applicable] | None = None,
    **options: Any,
) -> nn.Module:
    """Load the model that was saved in `folder` with an encoding applied, and apply it again.

    `encoding` is needed where it is of a class of your own, or a function; what it has learned is
    read from the folder. `options` go to `from_pretrained`. Raises ValueError for a folder that
    holds no such model, or other weights than this one has.

    transformers' own `from_pretrained(folder)` refuses the folder, but not if it is passed
    `attn_implementation="sdpa"`: then it loads the model without the encoding, and no key that a
    config may safely have prevents that.
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
    base, _ = find_supported(model)
    path = next(name for name, module in model.named_modules() if module is base)
    per_layer = asked if isinstance(asked, Sequence | nn.ModuleList) else [asked]
    modules = [encoding for encoding in per_layer if isinstance(encoding, nn.Module)]
    learned = nn.ModuleList(dict.fromkeys(modules))
    prefix = f"{path}.{NAME}.encodings.".removeprefix(".")
    wanted = {prefix + name: tied for name, tied in learned.state_dict(keep_vars=True).items()}
    stored = open_weights(find_files(root)) if wanted else {}
    tensors = {name: stored[name] for name in wanted if name in stored}
    loaded = {id(wanted[name]) for name in tensors}  # parameters that are tied have one tensor
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
    """Make the model what it was. Raises ValueError where nothing has been applied."""
    base, _ = find_supported(model)
    if not hasattr(base, NAME):
        raise ValueError("the model has no encoding applied: call `apply(model, encoding)` first.")
    getattr(base, NAME).take_out(base)
    delattr(base, NAME)


@contextmanager
def applied(model: nn.Module, encoding: Applicable | Sequence[Applicable]) -> Iterator[nn.Module]:
    """Apply an encoding within a `with` block, and remove it at the end, also after an error."""
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
        self.replaced: list[tuple[str, str, Any]] = []  # path, attribute, what it was

    def before(self, module: nn.Module, hook: Any) -> None:
        self.hooks.append(module.register_forward_pre_hook(hook, with_kwargs=True))

    def after(self, module: nn.Module, hook: Any) -> None:
        self.hooks.append(module.register_forward_hook(hook, always_call=True))

    def replace(self, base: nn.Module, path: str, name: str, value: Any) -> None:
        owner = attrgetter(path)(base)
        self.replaced.append((path, name, getattr(owner, name)))
        setattr(owner, name, value)

    def settle(
        self, base: nn.Module, path: str, encoding: Encoding, supported: SupportedModel
    ) -> None:
        """Give an attention the softmax scale of the encoding, and no temperature beside its."""
        attention: Any = attrgetter(path)(base)
        dim = supported.channels(attention)
        divides = hasattr(attention, "scale_attn")  # GPT-J's
        own = 1 / attention.scale_attn if divides else attention.scaling
        # A scale that the encoding states replaces the model's, which otherwise is multiplied;
        # that of DeepSeek holds what belongs to its YaRN.
        stated = any(getattr(part, "softmax_scale", None) for part in encoding.modules())
        own = dim**-0.5 if stated or supported.trailing else own
        scale = own * (encoding.scale(dim) / dim**-0.5)
        if divides:
            self.replace(base, path, "scale_attn", 1 / scale)
        else:
            self.replace(base, path, "scaling", scale)
        tuned = hasattr(attention, "attn_temperature_tuning")
        if tuned and any(isinstance(part, Temperature) for part in leaves(encoding)):
            self.replace(base, path, "attn_temperature_tuning", False)

    def take_out(self, base: Any) -> None:
        for hook in self.hooks:
            hook.remove()
        for path, name, value in reversed(self.replaced):
            setattr(attrgetter(path)(base), name, value)
        if hasattr(base, "rotary_emb"):
            base.rotary_emb = base.rotary_emb.instead_of
        del base.config.posenc, base.config.attn_implementation


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


def _fitting(asked: Applicable, attention: Any, base: Any, supported: SupportedModel) -> Encoding:
    """Check that the encoding fits; of a function of the length, that of a text of one token."""
    encoding = asked if isinstance(asked, Encoding) or not callable(asked) else asked(1)
    if not isinstance(encoding, Encoding):
        raise TypeError(
            "`encoding` is an `Encoding`, or a function from the length of a text to one, got"
            f" {type(encoding).__name__}."
        )
    dim, model = supported.channels(attention), type(base).__name__
    for part in leaves(encoding):
        if "on_hidden" in part.acts_on:
            raise ValueError(
                f"{type(part).__name__} reads the input of each layer, which {model} hands to no"
                " encoding: apply one that goes by positions, and use this one in `SelfAttention`."
            )
        values = part.dim if {"on_values", "by_weight", "on_output"} & {*part.acts_on} else 0
        for what, size, has in (
            ("heads", part.heads, base.config.num_attention_heads),
            ("channels of a head", part.dim, dim),
            ("channels of an embedding", part.width, base.config.hidden_size),
            ("axes", part.axes, 1),
            ("channels of a value", values, getattr(attention, "v_head_dim", dim)),
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
