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

A cache belongs to the encoding that it was filled under. Where the frequencies depend on the length
of the text (dynamic NTK, LongRoPE), pass the function length -> RoPE. Each row goes by its own
length; once that asks for other frequencies than its cache was filled with, only a fresh pass is
right, since all layers but the first have cached what they saw through the old ones: refused.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import count
from typing import Any

from torch import nn

from posenc.encoding import Encoding
from posenc.models.plugs import NAME, ByLength, Entrance, Plug, Silent, register
from posenc.models.sockets import Socket, found
from posenc.rotary.rope import RoPE
from posenc.sum import Sum
from posenc.temperature import Temperature

Given = Encoding | ByLength
_applied = count()


def apply(model: nn.Module, encoding: Given | Sequence[Given]) -> None:
    """Replaces the positional encoding of `model` until `remove`; what is learned trains with it.

    Raises TypeError for unknown models, ValueError for what does not fit; nothing is changed then.
    """
    base, socket = found(model)
    if hasattr(base, NAME):
        raise ValueError("the model has an encoding applied already: call `remove(model)` first.")
    layers = getattr(base, socket.layers)
    attentions = [getattr(layer, socket.attention) for layer in layers]
    given: list[Any] = (
        [*encoding] if isinstance(encoding, Sequence | nn.ModuleList) else [encoding] * len(layers)
    )
    if len(given) != len(layers):
        raise ValueError(
            f"`encoding` has {len(given)} encodings for {len(layers)} layers: give one for each, or"
            " one for all."
        )
    made = [_fitting(one, a, base, socket) for one, a in zip(given, attentions, strict=True)]
    rotation = all(map(socket.can_turn, made, attentions))
    by_length = [m for g, m in zip(given, made, strict=True) if not isinstance(g, Encoding)]
    _refuse_misplaced(made, by_length, rotation)
    record = f"{NAME}_{next(_applied)}"
    bottom = made[0] if "on_embeddings" in made[0].acts_on else None
    with ExitStack() as undo:
        entrance = Entrance(bottom, bool(by_length), rotation)
        hook = base.register_forward_pre_hook(entrance, with_kwargs=True)
        undo.callback(hook.remove)
        if hasattr(base, "rotary_emb"):
            _set(undo, base, "rotary_emb", Silent())
        if not rotation:
            register()
            _set(undo, base.config, "_attn_implementation", NAME)
        for i, (layer, attention) in enumerate(zip(layers, attentions, strict=True)):
            plug = Plug(i, given[i], socket, socket.turning(attention), rotation, record)
            _plug_in(plug, layer, attention, made[i], undo)
        setattr(base, NAME, Applied([g for g in given if isinstance(g, nn.Module)], base.device))
        getattr(base, NAME).undo = undo.pop_all()


def remove(model: nn.Module) -> None:
    """Makes the model what it was. Raises ValueError where nothing has been applied."""
    base, _ = found(model)
    if not hasattr(base, NAME):
        raise ValueError("the model has no encoding applied: call `apply(model, encoding)` first.")
    getattr(base, NAME).undo.close()
    delattr(base, NAME)


@contextmanager
def applied(model: nn.Module, encoding: Given | Sequence[Given]) -> Iterator[nn.Module]:
    """`apply`, and `remove` at the end, whatever happens in between."""
    apply(model, encoding)
    try:
        yield model
    finally:
        remove(model)


class Applied(nn.Module):
    """The encodings, as a part of the model, which makes their parameters its own; the way back."""

    undo: ExitStack

    def __init__(self, encodings: list[nn.Module], device: Any):
        super().__init__()
        self.encodings = nn.ModuleList(dict.fromkeys(encodings)).to(device)


def _plug_in(plug: Plug, layer: Any, attention: Any, encoding: Encoding, undo: ExitStack) -> None:
    dim = plug.socket.channels(attention)
    factor = encoding.scale(dim) / dim**-0.5
    if hasattr(attention, "scale_attn"):  # GPT-J
        _set(undo, attention, "scale_attn", attention.scale_attn / factor)
        hook = attention.register_forward_pre_hook(plug.in_gptj, with_kwargs=True)
        for name in ("_attn", "_get_embed_positions"):
            undo.callback(vars(attention).pop, name, None)
    else:
        deepseek = plug.socket.trailing  # whose scale holds what belongs to its YaRN
        _set(undo, attention, "scaling", (dim**-0.5 if deepseek else attention.scaling) * factor)
        hook = layer.register_forward_pre_hook(plug, with_kwargs=True)
    undo.callback(hook.remove)
    own = hasattr(attention, "attn_temperature_tuning")
    if own and any(isinstance(part, Temperature) for part in _parts(encoding)):
        _set(undo, attention, "attn_temperature_tuning", False)


def _fitting(given: Given, attention: Any, base: Any, socket: Socket) -> Encoding:
    """The encoding, or that of a short text. Raises what the layer cannot do with it."""
    encoding = given if isinstance(given, Encoding) or not callable(given) else given(1)
    if not isinstance(encoding, Encoding):
        raise TypeError(
            "`encoding` is an `Encoding`, or a function from the length of a text to one, got"
            f" {type(encoding).__name__}."
        )
    dim, model = socket.channels(attention), type(base).__name__
    for part in _parts(encoding):
        values = dim if "on_values" in part.acts_on else 0
        for what, asked, has in (
            ("heads", part.heads, base.config.num_attention_heads),
            ("channels of a head", part.dim, dim),
            ("channels of an embedding", part.width, base.config.hidden_size),
            ("axes", part.axes, 1),
            ("channels of a value", values, getattr(attention, "v_head_dim", dim)),
        ):
            if asked not in (0, has):
                name = type(part).__name__
                raise ValueError(f"this {name} was made for {asked} {what}, {model} has {has}.")
    return encoding


def _refuse_misplaced(made: list[Encoding], by_length: list[Encoding], rotation: bool) -> None:
    for i, one in enumerate(made):
        if "on_embeddings" in one.acts_on and one is not made[0]:
            raise ValueError(
                f"{type(one).__name__} acts on embeddings, which are below all layers: give it to"
                f" layer 0, not to layer {i}."
            )
    if by_length and not (rotation and all(isinstance(one, RoPE) for one in by_length)):
        raise ValueError(
            "what depends on the length of the text can only be RoPE that turns the channels which"
            " the model turns, in its layout, with RoPE or NoPE in the other layers."
        )


def _parts(encoding: Encoding) -> list[Encoding]:
    if not isinstance(encoding, Sum):
        return [encoding]
    return [part for one in encoding for part in _parts(one)]


def _set(undo: ExitStack, thing: Any, name: str, value: Any) -> None:
    undo.callback(setattr, thing, name, getattr(thing, name))
    setattr(thing, name, value)
