"""Reading a text token by token, with a key cache, gives the result of one pass over the text."""

import torch

from posenc import Cache, SelfAttention, create, masks

x = torch.randn(1, 12, 64)
for name in ("rope", "alibi", "t5", "shaw", "transformer-xl", "deberta"):
    layer, cache = SelfAttention(64, heads=4, encoding=create(name, dim=16, heads=4)), Cache()
    whole = layer(x, mask=masks.causal())
    steps = [layer(token, mask=masks.causal(), cache=cache) for token in x.split(1, dim=1)]
    print(f"{name:15} differs by {(torch.cat(steps, 1) - whole).abs().max():.1e}")
