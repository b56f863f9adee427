"""Sinusoids whose frequencies are learned instead of fixed (limitation 4 of source 002).

Source 002: the frequencies are hardcoded, which may not be optimal for a given task. Here a pattern
repeats every 24 tokens, as the lines of a poem do. No weighted sum of the 16 channels of sinusoids
follows it for 96 tokens; with θ as a parameter one pair finds the period. On 128 tokens gradient
descent from the same start does not find it, because the error has many minima in θ. RoPE learns θ
by `RoPE(64, learned=True)`; rows that are added need a class such as the one below.
"""

import sys
from pathlib import Path

import torch

from posenc import Encoding, frequencies
from posenc.show.report.drawing.figure import Figure, Panel, style
from posenc.show.report.drawing.marks import Line
from posenc.show.report.drawing.matplotlib import save

WIDTH, PERIOD = 16, 24


class LearnedWaves(Encoding):
    """Sines and cosines whose frequencies are a parameter."""

    def __init__(self):
        super().__init__()
        self.log_theta = torch.nn.Parameter(frequencies(WIDTH).float().log())

    def on_embeddings(self, x, at):
        angle = at.unsqueeze(-1) * self.log_theta.exp()
        return x + torch.cat([angle.sin(), angle.cos()], -1)


def best(encoding: LearnedWaves, wave: torch.Tensor) -> torch.Tensor:
    """Return the weighted sum of channels that is nearest to the target pattern."""
    rows = encoding(torch.zeros(1, len(wave), WIDTH))[0]
    return rows @ torch.linalg.lstsq(rows.detach(), wave, driver="gelsd").solution


fits, missed = {}, {}
for tokens in (128, 96):
    wave = torch.cos(torch.arange(tokens) * 2 * torch.pi / PERIOD)[:, None]
    encoding = LearnedWaves()
    optimizer = torch.optim.Adam(encoding.parameters(), lr=3e-3)
    for step in range(201):
        fit = best(encoding, wave)
        loss = (fit - wave).square().sum() / wave.square().sum()
        if name := {0: "fixed frequencies", 200: "learned frequencies"}.get(step):
            fits[name], missed[tokens, name] = fit[:, 0].tolist(), loss.item()
            print(f"{tokens} tokens, {name}: {loss.item():.1%} of the pattern is missed")
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

lines = [
    Line(range(96), curve, name, **{**style(n), "marker": ""})
    for n, (name, curve) in enumerate({"the pattern": wave[:, 0].tolist(), **fits}.items())
]
figure = Figure(
    "Learned frequencies follow a period that fixed ones miss",
    [Panel("", lines, "position", "value")],
    f"The best weighted sums of {WIDTH} channels for 96 tokens. Fixed frequencies miss"
    f" {missed[96, 'fixed frequencies']:.0%} of the pattern.",
)
if __name__ == "__main__" and sys.argv[1:]:
    save(figure, Path(sys.argv[1]))
