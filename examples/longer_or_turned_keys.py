"""A longer key cannot raise the low score that RoPE gives a far pair; a rotated key can.

Source 000: for a query and a far key to align, "the model has to compensate. It can learn to
increase the magnitude … or project them into a space where they are much closer". A key equal to
its query has the score Σⱼ |qⱼ|² cos(m θⱼ) at distance m. A key that is longer by a factor
multiplies the scores at all distances by it, so the nearest stays ahead, and a negative score only
becomes more negative. A projection that turns the key back by r tokens moves the best distance to
r.
"""

import sys
from pathlib import Path

import torch

from posenc import frequencies
from posenc.show.report.drawing.figure import Figure, Panel, style
from posenc.show.report.drawing.marks import Line, Rule
from posenc.show.report.drawing.matplotlib import save

DIM, LONGEST, AWAY = 64, 1000, 100
distance = torch.arange(LONGEST + 1.0, dtype=torch.float64)[:, None]
theta = frequencies(DIM)
equal = torch.cos(distance * theta).mean(-1)  # each pair of q has the same length
scores = {
    "a key equal to the query": equal,
    "the same, twice as long": 2 * equal,
    f"turned back by {AWAY} tokens": torch.cos((distance - AWAY) * theta).mean(-1),
}
best = {name: int(score.argmax()) for name, score in scores.items()}
for name, score in scores.items():
    print(f"{name}: best at {best[name]},", end=" ")
    print(", ".join(f"{score[m]:.2f} at {m:,}" for m in (0, 1, AWAY, 725, LONGEST)))

figure = Figure(
    "A longer key keeps the nearest distance best; a turned key moves it",
    [
        Panel(
            "",
            [
                *(Line(range(0, 301), s[:301].tolist(), name, **{**style(n), "marker": ""})
                  for n, (name, s) in enumerate(scores.items())),
                Rule(AWAY, "x", f"{AWAY} tokens"),
            ],
            "distance, tokens",
            "score, of that at distance 0",
        )
    ],
    f"Scores of three keys under RoPE with {DIM} channels. Turned back by {AWAY} tokens, a key as"
    f" long as the query is best at {AWAY}.",
)  # fmt: skip
if __name__ == "__main__" and sys.argv[1:]:
    save(figure, Path(sys.argv[1]))
