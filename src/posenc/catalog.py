"""Every encoding, listed by hand: one line a card. Order: from the first idea to the latest."""

from difflib import get_close_matches

from posenc import none
from posenc.additive import (
    binary,
    integer,
    learned,
    linear_sinusoidal,
    normalized,
    sine,
    sine_cosine,
    sinusoidal,
)
from posenc.arguments import channels, query_heads, shown
from posenc.bias import alibi, fire, kerple, t5
from posenc.card import Card
from posenc.encoding import Encoding
from posenc.relative import deberta, shaw, transformer_xl
from posenc.rotary import axial, mixed, mrope, p_rope, rope, xpos

CATALOG: tuple[Card, ...] = (
    none.CARD,
    integer.CARD,
    normalized.CARD,
    binary.CARD,
    sine.CARD,
    sine_cosine.CARD,
    linear_sinusoidal.CARD,
    sinusoidal.CARD,
    learned.CARD,
    shaw.CARD,
    transformer_xl.CARD,
    t5.CARD,
    deberta.CARD,
    alibi.CARD,
    rope.CARD,
    kerple.CARD,
    xpos.CARD,
    p_rope.CARD,
    axial.CARD,
    axial.CARD_3D,
    fire.CARD,
    mixed.CARD,
    mrope.CARD,
)


def find(name: str) -> Card:
    """The card of that name; case, spaces, dashes and underscores do not matter.

    Raises LookupError with the nearest names on a typo.
    """
    if not isinstance(name, str):
        raise TypeError(
            f"`name` must be that of an encoding, 'rope' for instance, got {shown(name)}."
        )
    cards = {_plain(card.name): card for card in CATALOG}
    plain = _plain(name)
    if plain in cards:
        return cards[plain]
    contain = [known for known in cards if len(plain) > 1 and plain in known]
    near = dict.fromkeys([*get_close_matches(plain, cards, cutoff=0.7), *contain])
    slugs = [cards[known].slug for known in near][:3]
    hint = f"Did you mean {' or '.join(slugs)}?" if slugs else "`posenc list` shows all."
    raise LookupError(f"no encoding is called {name!r}. {hint}")


def create(name: str, dim: int, heads: int, **options) -> Encoding:
    """An encoding of the catalogue, for heads of `dim` channels and embeddings of dim · heads.

    >>> create("rope", dim=64, heads=8, layout="half")
    RoPE(64 channels, layout='half', gain=1)
    """
    card, dim, heads = find(name), channels(dim), query_heads(heads)
    try:
        return card.make(dim, heads, **options)
    except TypeError as error:
        raise TypeError(f"{card.name} does not take {options}: {error}") from error


def _plain(name: str) -> str:
    return "".join(letter for letter in name.lower() if letter.isalnum())
