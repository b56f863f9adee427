"""Without positions, both occurrences of a word get the same output (sources 000 and 004).

This holds as long as every token sees every other. Source 000: "Training shouldn't matter". It does
not, but a causal mask does, so in today's language models the dogs differ without any encoding. In
source 004 the dogs are tokens 2 and 5 because its tokenizer adds a first token; here they are 1 and
4. Vectors and weights are random.
"""

import sys
from dataclasses import replace
from pathlib import Path

import torch

from posenc import NoPE, RoPE, SelfAttention, attend, masks
from posenc.analysis import order
from posenc.show.report.drawing.matplotlib import save
from posenc.show.report.figures.attention import attention

words = "the dog chased another dog".split()
first, second = order.repeated(words) or (0, 0)
torch.manual_seed(0)
vector = {word: torch.randn(64) for word in words}
x = torch.stack([vector[word] for word in words]).unsqueeze(0)
layer = SelfAttention(64, 4, NoPE())
apart = order.duplicate(layer, x, first, second)
apart_causal = order.duplicate(layer, x, first, second, masks.causal())
layer.encoding = RoPE(16)
apart_rope = order.duplicate(layer, x, first, second)
print(f"the dogs are words {first} and {second}; their outputs differ by")
print(f"{apart:.1e} without positions,")
print(f"{apart_causal:.2f} without positions under a causal mask,")
print(f"{apart_rope:.2f} with RoPE and no mask")

q = 0.4 * (x + 2).unsqueeze(1)  # words have much in common, as real ones do
see = torch.eye(len(words))[None, None]
shown = {
    "no positions": attend(q, q, see, NoPE()),
    "causal mask": attend(q, q, see, NoPE(), mask=masks.causal()),
    "RoPE": attend(q, q, see, RoPE(64)),
}
figure = replace(
    attention([w[0, 0].tolist() for w in shown.values()], words, list(shown)),
    title="Without positions two dogs get one output, unless there is a mask",
)
if __name__ == "__main__" and sys.argv[1:]:
    save(figure, Path(sys.argv[1]))
