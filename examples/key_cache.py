"""Token by token with a key cache, and the whole text at once: the same, for any encoding."""

import torch

from posenc import attend, create, masks
from posenc.core.positions import sequence

tokens = 12
q, k, v = torch.randn(3, 1, 4, tokens, 16)
for name in ("rope", "alibi", "t5", "shaw", "transformer-xl", "deberta"):
    encoding = create(name, dim=16, heads=4)
    whole = attend(q, k, v, encoding, mask=masks.causal())
    steps = []
    for n in range(tokens):
        here, so_far = sequence(1, start=n), sequence(n + 1)
        at, k_at = encoding.prepare(here), encoding.prepare(so_far)
        seen = slice(0, n + 1)
        step = attend(q[:, :, n : n + 1], k[:, :, seen], v[:, :, seen], encoding, at, k_at)
        steps.append(step)
    print(f"{name:15} differs by {(torch.cat(steps, 2) - whole).abs().max():.1e}")
