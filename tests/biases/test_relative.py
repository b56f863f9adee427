"""The factors of a bias against its own block: y = ψ · ρ through the ReLUs, pair by pair."""

import torch

from posenc import FIRE
from posenc.biases.relative import RelativeBias

HEADS, TOKENS, UNITS = 3, 12, 5


def test_factors_and_units_make_the_bias():
    """Against loops, for tokens before and beyond L."""
    fire, pos = FIRE(HEADS, length=4, hidden=UNITS).double(), 2 * torch.arange(TOKENS) + 1
    q = torch.empty(1, HEADS, TOKENS, 8, dtype=torch.float64)
    with torch.no_grad():
        bias = fire.on_scores(q, q, pos, pos, 1.0)
        assert isinstance(bias, RelativeBias)
        block = bias.block(slice(None), slice(None))
        for i in range(TOKENS):
            for j in range(TOKENS):
                psi, rho, w, b, outer = bias.factors(pos[i] - pos[j], pos[i])
                due = outer @ (w * psi * rho + b).relu()
                torch.testing.assert_close(block[0, :, i, j].double(), due.double())
