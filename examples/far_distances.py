"""Clipping distances in a trained model: beyond four words they do not help it (source 003).

Source 003, of r = clip(m − n, Rmin, Rmax): "Relative position info is not useful beyond a certain
distance". A tiny model of the novel (two blocks, words as tokens, texts of 32 words) learns a key
and a value for every distance. Then all distances beyond a reach get the vectors of the reach. From
a reach of 4 on it loses nothing. The baseline is a model trained with reach 0, to which only the
mask shows the order. 400 steps, one seed; large models and other texts may need more.
"""

import sys
from pathlib import Path

import torch
from torch.nn.functional import cross_entropy

from posenc import Block
from posenc.analysis.text import novel
from posenc.encodings.relative.shaw import Shaw
from posenc.show.report.drawing.figure import Figure, Panel, style
from posenc.show.report.drawing.marks import Line, Rule
from posenc.show.report.drawing.matplotlib import save

WIDTH, HEADS, LENGTH, STEPS, WORDS = 64, 4, 32, 400, 512
REACHES = (0, 1, 2, 4, 8, 16, 31)
tokens = novel().ids.clamp(max=WORDS - 1)
train, test = tokens[:-4096], tokens[-4096:].unfold(0, LENGTH + 1, LENGTH)


def learn(reach: int) -> torch.nn.Sequential:
    torch.manual_seed(0)
    blocks = [Block(WIDTH, HEADS, Shaw(WIDTH // HEADS, reach), causal=True) for _ in range(2)]
    model = torch.nn.Sequential(
        torch.nn.Embedding(WORDS, WIDTH), *blocks, torch.nn.Linear(WIDTH, WORDS)
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for _ in range(STEPS):
        read = train[torch.randint(len(train) - LENGTH, (16, 1)) + torch.arange(LENGTH + 1)]
        optimizer.zero_grad()
        cross_entropy(model(read[:, :-1]).flatten(0, 1), read[:, 1:].flatten()).backward()
        optimizer.step()
    return model


@torch.no_grad()
def loss(model: torch.nn.Sequential) -> float:
    return float(cross_entropy(model(test[:, :-1]).flatten(0, 1), test[:, 1:].flatten()))


@torch.no_grad()
def clip(model: torch.nn.Sequential, reach: int) -> None:
    """Replace the vectors of all distances beyond the reach by the vectors at the reach."""
    for block in list(model)[1:3]:
        shaw = getattr(block, "attention").encoding  # noqa: B009
        for table in (shaw.relative_keys, shaw.relative_values):
            table[shaw.reach + reach :] = table[shaw.reach + reach].clone()


model, without = learn(REACHES[-1]), loss(learn(0))
clipped = {}
for reach in reversed(REACHES):
    clip(model, reach)
    clipped[reach] = loss(model)
    print(f"distances up to {reach}: {clipped[reach]:.3f} nats a word")
print(f"trained without distances: {without:.3f}")

figure = Figure(
    "Clipped at four words or more, a tiny model loses nothing",
    [
        Panel(
            "",
            [
                Line(
                    range(len(REACHES)),
                    [clipped[reach] for reach in REACHES],
                    "clipped",
                    **style(0),
                ),
                Rule(without, "y", "trained without distances"),
            ],
            "distances beyond this are clipped",
            "nats a word",
            x_names=[str(reach) for reach in REACHES],
        )
    ],
    "Loss of a model trained with distances up to 31, when far distances get the vectors of a"
    f" shorter reach: {clipped[31]:.3f} nats at 31, {clipped[4]:.3f} at 4, {clipped[0]:.3f} at 0.",
)
if __name__ == "__main__" and sys.argv[1:]:
    save(figure, Path(sys.argv[1]))
