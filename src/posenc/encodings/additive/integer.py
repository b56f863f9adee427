"""Integer: add the position itself to every channel.

    PE(p, c) = p,  c = 0 … d − 1

This is the simplest idea, and it shows which properties are missing: rows grow without bound (at
p = 100 they are about a hundred times larger than embeddings), and p + k is not a linear map of p.

Fleetwood 2024, "You could have designed state of the art positional encoding", first step.
"""

from posenc.core.encoding import Encoding
from posenc.core.positions import exact_copy
from posenc.core.shapes import Embeddings, Positions
from posenc.encodings.additive.add import TokenRows, add
from posenc.properties import any_length, length_independent, order_sensitive, unique_positions
from posenc.properties.card import Card, paper
from posenc.support.arguments import channels


class Integer(Encoding):
    """Position, added to every channel: `Integer(512)`.

    - `width`: channels of the embeddings

    >>> import torch
    >>> Integer(2)(torch.zeros(3, 2)).tolist()
    [[0.0, 0.0], [1.0, 1.0], [2.0, 2.0]]
    """

    prepared = TokenRows

    def __init__(self, width: int):
        super().__init__()
        self.width = channels(width, "width")

    def prepare(self, pos: Positions) -> TokenRows:
        return TokenRows(exact_copy(pos).unsqueeze(-1).expand(*pos.shape, self.width))

    def on_embeddings(self, x: Embeddings, at: TokenRows) -> Embeddings:
        return add(x, at.rows)


CARD = Card(
    name="Integer",
    paper=paper("fleetwood2024designed"),
    make=lambda dim, heads, **options: Integer(dim * heads, **options),
    holds=frozenset({unique_positions, any_length, length_independent, order_sensitive}),
)
