"""Rotating values loses what nearby tokens share, and depends on absolute positions (source 001).

Source 001: RoPE turns q and k but not v, because "rotating them would distort meaning for no
benefit". Here v is turned as well. Of a value that all 64 tokens share, unrotated attention passes
on everything; of rotated ones, fast pairs cancel in the sum. The output also changes when the text
is moved by 100 tokens, unless it is turned back by the query's position, as DeepSeek-V4 does.
"""

import sys
from pathlib import Path

import torch

from posenc import RoPE, attend
from posenc.show.report.drawing.figure import Figure, Panel, style
from posenc.show.report.drawing.marks import Line
from posenc.show.report.drawing.matplotlib import save

TOKENS, DIM = 64, 64
torch.manual_seed(0)
rope, q, k, v = RoPE(DIM), *torch.randn(3, 1, 1, TOKENS, DIM)
same = torch.randn(DIM).expand(1, 1, TOKENS, DIM)  # one value for all tokens


def rotated(v, start, back):
    """Compute attention with values rotated like keys; with `back`, rotate the output back."""
    pos = torch.arange(TOKENS) + start
    out = attend(q, k, rope.on_keys(v, rope.prepare(pos)), rope, pos)
    return rope.on_queries(out, rope.prepare(-pos)) if back else out


def plain(v, start):
    return attend(q, k, v, rope, torch.arange(TOKENS) + start)


ways = {
    "values as they are": plain,
    "rotated": lambda v, start: rotated(v, start, back=False),
    "rotated, output turned back": lambda v, start: rotated(v, start, back=True),
}
moved, kept, pairs = {}, {}, {}
for name, way in ways.items():
    moved[name] = float((way(v, 100) - way(v, 0)).abs().max())
    out = way(same, 0)[0, 0]
    kept[name] = float((out.norm(dim=-1) / same[0, 0].norm(dim=-1)).mean())
    in_pairs, whole = (x.unflatten(-1, (-1, 2)).norm(dim=-1) for x in (out, same[0, 0]))
    pairs[name] = (in_pairs / whole).mean(0).tolist()
    print(f"{name}: {kept[name]:.0%} of a shared value is passed on;", end=" ")
    print(f"100 tokens later the output differs by {moved[name]:.0e}")

figure = Figure(
    "Attention passes on less of rotated values",
    [Panel("", [Line(range(DIM // 2), share, name, **style(n))
                for n, (name, share) in enumerate(pairs.items()) if n < 2],
           "pair of channels, from fast to slow", "share that is passed on", y_range=(0, 1.05))],
    f"{TOKENS} tokens with one value. Of rotated values the fast pairs cancel in the sum.",
)  # fmt: skip
if __name__ == "__main__" and sys.argv[1:]:
    save(figure, Path(sys.argv[1]))
