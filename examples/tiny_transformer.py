"""A transformer written by hand, from tokens and positions to training and decoding.

python examples/tiny_transformer.py alibi
"""

import sys

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, gelu

from posenc import Encoding, NoPE, SelfAttention, attend, create, masks
from posenc.analysis.text import novel

WIDTH, HEADS, LENGTH, STEPS, BATCH = 64, 4, 32, 150, 16


class Layer(nn.Module):
    """A transformer layer: x + attention(norm(x)), then x + mlp(norm(x))."""

    def __init__(self, encoding: Encoding):
        super().__init__()
        self.parts = SelfAttention(WIDTH, HEADS, encoding)  # the maps to q, k, v and from heads
        self.before_attention, self.before_mlp = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        encoding = self.parts.encoding
        at = encoding.prepare(torch.arange(x.shape[1]))  # position: 0, 1, 2, …
        x = encoding.on_embeddings(x, at)  # where Sinusoidal adds its rows
        q, k, v, at = self.parts.project(self.before_attention(x), at)
        # attend: softmax(q · k) v; RoPE turns q and k in it, ALiBi adds to their products
        heads = attend(q, k, v, encoding, at, mask=masks.causal())
        x = x + self.parts.out(heads.transpose(1, 2).flatten(2))
        return x + self.down(gelu(self.up(self.before_mlp(x))))


class Transformer(nn.Module):
    def __init__(self, words: int, name: str):
        super().__init__()
        first, second = (create(name, dim=WIDTH // HEADS, heads=HEADS) for _ in range(2))
        if "on_embeddings" in second.acts_on:  # rows are added once, at the bottom
            second = NoPE()
        self.embedding = nn.Embedding(words, WIDTH)
        self.layers = nn.Sequential(Layer(first), Layer(second))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, words)

    def forward(self, tokens: Tensor) -> Tensor:
        """Compute the logits of the word that follows each word."""
        return self.head(self.norm(self.layers(self.embedding(tokens))))  # embed, then the rest


def learn(name: str, steps: int = STEPS) -> tuple[Transformer, list[str], list[float]]:
    text, losses = novel(), []
    words = [*text.distinct[:511], "…"]  # tokenise: a number for each of the commonest words
    tokens = text.ids.clamp(max=511)
    torch.manual_seed(0)
    model = Transformer(len(words), name)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for _ in range(steps):
        starts = torch.randint(len(tokens) - LENGTH, (BATCH, 1))
        read = tokens[starts + torch.arange(LENGTH + 1)]
        logits = model(read[:, :-1])
        # loss: −log softmax(logits) of the word that did follow, over all places
        loss = cross_entropy(logits.flatten(0, 1), read[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()  # optimise: a step downhill
        losses.append(loss.item())
    return model, words, losses


@torch.no_grad()
def decode(
    model: Transformer, words: list[str], start: str, more: int = 16, temperature: float = 0.0
) -> str:
    """Continue a text with words drawn from softmax(logits / temperature).

    A low temperature sharpens the distribution, a high one flattens it; 0 selects the likeliest.
    """
    tokens = [words.index(word) for word in start.split()]
    for _ in range(more):
        logits = model(torch.tensor([tokens[-LENGTH:]]))[0, -1]
        logits[-1] = -torch.inf  # "…", the token for unknown words
        if temperature:
            shares = (logits / temperature).softmax(-1)
            tokens.append(int(shares.multinomial(1)))  # sampling
        else:
            tokens.append(int(logits.argmax()))
    return " ".join(words[token] for token in tokens)


if __name__ == "__main__":
    name = sys.argv[1] if sys.argv[1:] else "rope"
    model, words, losses = learn(name)
    print(f"{name}: loss {losses[0]:.2f} → {sum(losses[-10:]) / 10:.2f} nats a word")
    for temperature in (0.0, 0.7, 1.5):
        torch.manual_seed(0)
        print(f"at temperature {temperature}: {decode(model, words, 'she was', 16, temperature)}")
