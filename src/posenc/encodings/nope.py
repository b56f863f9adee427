"""NoPE: no positional encoding, the baseline for all others.

    score(i, j) = qᵢ · kⱼ · scale

Without a mask, attention is permutation-equivariant: shuffled tokens give shuffled outputs, and two
occurrences of a word have the same output. A causal mask breaks this symmetry if words differ,
because each token then sees a different set of tokens.

Haviv et al. 2022, arXiv:2203.16634; Kazemnejad et al. 2023, arXiv:2305.19466.
"""

from posenc.core.encoding import Encoding
from posenc.properties import (
    any_length,
    length_independent,
    norm_preserving,
    shift_invariant,
    symmetric,
)
from posenc.properties.card import Card, paper


class NoPE(Encoding):
    """Attention without positions: `NoPE()`.

    >>> NoPE().acts_on
    ()
    """


CARD = Card(
    name="NoPE",
    paper=paper("kazemnejad2023impact"),
    used_by="every fourth layer of Llama 4, SmolLM3",
    make=lambda dim, heads: NoPE(),
    holds=frozenset({shift_invariant, symmetric, norm_preserving, any_length, length_independent}),
)
