"""A fixed random vector for each position identifies positions, but does not encode distances.

Source 000 discusses random numbers, drawn once, as positions. They are distinct: no two rows are
equal. But pairs at the same distance have nothing in common, so a model must learn each pair of
positions separately. With sinusoids the distance alone determines the product.
"""

import sys
from pathlib import Path

import torch

from posenc import Sinusoidal
from posenc.show.report.drawing.figure import Figure, Panel
from posenc.show.report.drawing.marks import heat
from posenc.show.report.drawing.matplotlib import save

TOKENS, WIDTH = 48, 64


def decided(products: torch.Tensor) -> float:
    """Return the share of the variance of rows' dot products that the distance explains."""
    by_distance = [products.diagonal(-distance) for distance in range(1, TOKENS // 2)]
    along = sum(float(one.var(correction=0)) for one in by_distance) / len(by_distance)
    return 1 - along / float(torch.cat(by_distance).var(correction=0))


drawn = torch.randn(TOKENS, WIDTH, generator=torch.Generator().manual_seed(0)).double()
tables = {
    "random rows": drawn * (WIDTH / 2) ** 0.5 / drawn.norm(dim=-1, keepdim=True),  # as long
    "sinusoids": Sinusoidal(WIDTH)(torch.zeros(1, TOKENS, WIDTH))[0].double(),
}
products = {name: rows @ rows.T for name, rows in tables.items()}
share = {name: decided(dots) for name, dots in products.items()}
nearest = {name: float(torch.pdist(rows).min()) for name, rows in tables.items()}
for name in tables:
    print(f"{name}: no two nearer than {nearest[name]:.2f};", end=" ")
    print(f"the distance decides {share[name]:.0%} of their products")

panels = [
    Panel(name, [heat(dots.tolist(), signed=True, unit="dot product")], y_down=True, square=True)
    for name, dots in products.items()
]
figure = Figure(
    "Random rows identify positions, but near and far look alike",
    panels,
    f"Products of {TOKENS} positions with each other. The distance decides"
    f" {share['random rows']:.0%} of those of random rows, {share['sinusoids']:.0%} of sinusoids'.",
    columns=2,
)
if __name__ == "__main__" and sys.argv[1:]:
    save(figure, Path(sys.argv[1]))
