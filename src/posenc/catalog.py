"""The catalogue of all encodings in the order of publication; `posenc` re-exports its classes."""

import sys
from collections.abc import Iterable
from dataclasses import replace
from inspect import Parameter, signature
from typing import Any

from posenc.core.encoding import Encoding, Sum
from posenc.properties import user_code
from posenc.properties.card import Card
from posenc.support import names
from posenc.support.arguments import brief, channels, query_heads

# isort: off
from posenc.encodings.nope import NoPE as NoPE
from posenc.encodings.additive.integer import Integer as Integer
from posenc.encodings.additive.normalized import Normalized as Normalized
from posenc.encodings.additive.binary import Binary as Binary
from posenc.encodings.additive.sine import Sine as Sine
from posenc.encodings.additive.sine_cosine import SineCosine as SineCosine
from posenc.encodings.additive.linear_sinusoidal import LinearSinusoidal as LinearSinusoidal
from posenc.encodings.additive.sinusoidal import Sinusoidal as Sinusoidal
from posenc.encodings.additive.learned import Learned as Learned
from posenc.encodings.relative.shaw import Shaw as Shaw
from posenc.encodings.relative.transformer_xl import TransformerXL as TransformerXL
from posenc.encodings.bias.t5 import T5Bias as T5Bias
from posenc.encodings.additive.sinusoidal_grid import SinusoidalGrid as SinusoidalGrid
from posenc.encodings.relative.deberta import DeBERTa as DeBERTa
from posenc.encodings.bias.swin import Swin as Swin
from posenc.encodings.bias.alibi import ALiBi as ALiBi
from posenc.encodings.rotary.rope import RoPE as RoPE
from posenc.encodings.bias.swin_v2 import SwinV2 as SwinV2
from posenc.encodings.relative.mvitv2 import MViTv2 as MViTv2
from posenc.encodings.bias.kerple import Kerple as Kerple
from posenc.encodings.rotary.xpos import XPos as XPos
from posenc.encodings.rotary.p_rope import PRoPE as PRoPE, p_rope as p_rope
from posenc.encodings.rotary.axial import (
    AxialRoPE as AxialRoPE,
    AxialRoPE3D as AxialRoPE3D,
    axial as axial,
)
from posenc.encodings.bias.fire import FIRE as FIRE
from posenc.encodings.rotary.mixed import Mixed as Mixed
from posenc.encodings.rotary.mrope import MRoPE as MRoPE, mrope as mrope
from posenc.encodings.relative.cope import CoPE as CoPE
from posenc.encodings.rotary.liere import LieRE as LieRE
from posenc.encodings.rotary.string import STRING as STRING
from posenc.encodings.bias.fox import FoX as FoX
from posenc.encodings.relative.path import PaTH as PaTH
from posenc.encodings.rotary.selective import SelectiveRoPE as SelectiveRoPE
from posenc.encodings.relative.wall import Wall as Wall
from posenc.encodings.rotary.fope import FoPE as FoPE
from posenc.encodings.rotary.pope import PoPE as PoPE
from posenc.encodings.rotary.remaps import (
    dual_chunk as dual_chunk,
    rerope as rerope,
    self_extend as self_extend,
)
from posenc.encodings.rotary.remapped import Remapped as Remapped
from posenc.encodings.bias.grape_a import GRAPEA as GRAPEA
from posenc.encodings.rotary.repo import RePo as RePo
from posenc.encodings.relative.inkling import Inkling as Inkling
# isort: on

# Names on cards that differ from the name of the class
KERPLE, T5, RoPEMixed, xPos, ReRoPE = Kerple, T5Bias, Mixed, XPos, Remapped

HOME = "posenc.encodings."
# Public names of classes, of functions that return a RoPE, and of functions that return its θ
ENCODINGS: dict[str, Any] = {
    name: value
    for name, value in globals().items()
    if getattr(value, "__module__", "").startswith(HOME)
}
CATALOG: tuple[Card, ...] = tuple(
    card
    for module in dict.fromkeys(encoding.__module__ for encoding in ENCODINGS.values())
    for card in vars(sys.modules[module]).values()
    if isinstance(card, Card)
)


def find(name: str | Card | Encoding) -> Card:
    """Return the card of the encoding with this name; case, spaces, "-" and "_" do not matter.

    An encoding outside of the catalogue gets a card without promises or a paper. Pass an instance,
    or `my_module.py:Mine` or `package.module:Mine`, which runs that code.

    Raises LookupError with the nearest names on a typo, and for code that does not contain an
    encoding.
    """
    if isinstance(name, Card):
        return name
    if isinstance(name, Encoding):
        return user_code.card_of(name)
    if not isinstance(name, str):
        raise TypeError(
            f"`name` must be the name of an encoding, for instance 'rope', got {brief(name)}."
        )
    if names.is_own(name):
        return user_code.load(name)
    cards = {names.normalise(card.name): card for card in CATALOG}
    if names.normalise(name) in cards:
        return cards[names.normalise(name)]
    raise LookupError(names.refusal(name, [card.slug for card in CATALOG]))


def choose(wanted: Iterable[str | Card | Encoding]) -> list[Card]:
    """Return the cards of the chosen encodings without duplicates; add numbers to equal names.

    >>> from posenc import ALiBi
    >>> [card.name for card in choose(["alibi", "rope", ALiBi(4), "RoPE"])]
    ['ALiBi', 'RoPE', 'ALiBi 2']
    """
    if isinstance(wanted, str | Encoding) or not isinstance(wanted, Iterable):
        raise TypeError(
            f"`names` must be a list of encodings or of their names, got {brief(wanted)}. Pass"
            " `['rope', 'alibi']` or `['rope']`, for instance."
        )
    chosen: dict[str, Card] = {}
    for card in dict.fromkeys(map(find, wanted)):
        label, number = card.name, 1
        while label.lower() in chosen:
            number += 1
            label = f"{card.name} {number}"
        chosen[label.lower()] = replace(card, name=label) if number > 1 else card
    return list(chosen.values())


def create(name: str, dim: int = 64, heads: int = 8, **options) -> Encoding:
    """Create an encoding of the catalogue by name, or the sum of several.

    - `name`: name in `posenc list`, for instance "rope"; case, spaces and dashes do not matter.
      "sinusoidal+alibi" creates the `Sum` of both. "my_module.py:Mine" runs that code.
    - `dim`: channels of a head
    - `heads`: query heads; an encoding that acts on embeddings gets dim · heads channels
    - `options`: the other arguments of the encoding's class; not allowed for a sum

    Raises LookupError for an unknown name, with the nearest ones, and TypeError for an unknown
    option.

    >>> create("rope"), create("rope", dim=128, base=500_000, layout="half")
    (RoPE(64 channels, base=10000, layout='interleaved'),
     RoPE(128 channels, base=500000, layout='half'))
    """
    parts = _parts(name)
    if len(parts) > 1:
        if options:
            raise TypeError(
                f"`options` must be omitted for a sum of encodings, {name!r}, got"
                f" {', '.join(options)}. Pass the options to each encoding:"
                f" `create({parts[0]!r}, …) + create({parts[1]!r}, …)`."
            )
        return Sum(*[create(part, dim, heads) for part in parts])
    card, dim, heads = find(name), channels(dim), query_heads(heads)
    try:
        return card.make(dim, heads, **options)
    except TypeError as error:
        known = _options(card, dim, heads) if card.paper else options
        for name in options:
            if name not in known:
                takes = ", ".join(f"`{name}`" for name in known) or "none"
                raise TypeError(
                    f"{card.name} has no option `{name}`. Its options are {takes}."
                ) from None
        raise TypeError(f"{card.name} cannot be created with {options}: {error}") from error


def _parts(name: str) -> list[str]:
    """Split the name of a sum, "rope+alibi", at "+", except within a path, "my+module.py:Mine"."""
    if not isinstance(name, str) or "+" not in name:
        return [name]
    parts = [part.strip() for part in name.split("+")]
    known = {names.normalise(card.slug) for card in CATALOG}
    named = all(names.is_own(part) or names.normalise(part) in known for part in parts)
    return parts if named or not names.is_own(name) else [name]


def _options(card: Card, dim: int, heads: int) -> list[str]:
    """Return the names of an encoding's optional arguments, except `dim` and `heads`."""
    parameters = [*signature(card.make).parameters.values()]
    if parameters[-1].kind is Parameter.VAR_KEYWORD:
        parameters += signature(type(card.make(dim, heads))).parameters.values()
    optional = [p.name for p in parameters if p.default is not p.empty]
    return [name for name in dict.fromkeys(optional) if name not in ("dim", "heads")]
