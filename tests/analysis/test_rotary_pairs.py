"""Models trained here in each layout, random weights, and weights in which only pairs are tied."""

import pytest
import torch
from torch import nn

from posenc import RoPE, SelfAttention, masks
from posenc.analysis.rotary_pairs import Evidence, alignment, evidence, strength
from posenc.core.frequencies import frequencies
from posenc.models.layouts import permutation

OTHER = {"half": "interleaved", "interleaved": "half"}


class Copier(nn.Module):
    """Two layers of attention that learn to repeat the text before."""

    def __init__(self, layout, width=128, heads=4, tokens=32):
        super().__init__()
        rope = RoPE(frequencies(width // heads, 100.0), layout=layout)
        self.embed = nn.Embedding(tokens, width)
        self.norms = nn.ModuleList(nn.RMSNorm(width) for _ in range(3))
        self.layers = nn.ModuleList(SelfAttention(width, heads, rope) for _ in range(2))
        self.out = nn.Linear(width, tokens)
        self.heads = heads

    def forward(self, ids):
        x, pos = self.embed(ids), torch.arange(ids.shape[1])
        for norm, layer in zip(self.norms, self.layers, strict=False):
            x = x + layer(norm(x), pos, masks.causal())
        return self.out(self.norms[2](x))

    def projections(self):
        for layer in self.layers:
            yield tuple(
                to.weight.detach().unflatten(0, (self.heads, -1)) for to in (layer.q, layer.k)
            )


def trained(layout, seed, steps=70, length=24):
    torch.manual_seed(seed)
    model = Copier(layout)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=1.0)
    for _ in range(steps):
        ids = torch.randint(32, (32, length)).repeat(1, 2)
        scores = model(ids[:, :-1])[:, length - 1 :]
        loss = nn.functional.cross_entropy(scores.flatten(0, 1), ids[:, length:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert loss < 0.5  # it has learned to copy
    return model


@pytest.mark.slow
@pytest.mark.parametrize("layout", ["half", "interleaved"])
def test_trained_weights_speak_for_the_layout_that_they_were_trained_in(layout, unchecked):
    found = evidence(trained(layout, seed=1).projections())
    assert found.verdict == layout
    assert found.t[layout] > 2 * found.t[OTHER[layout]]
    assert found.pairs[layout] > 1.3 * found.others[layout]


@pytest.mark.parametrize("heads", [1, 4])
@pytest.mark.parametrize("dim", [2, 4, 16, 64])
def test_weights_that_nobody_has_trained_speak_for_neither(dim, heads):
    for seed in range(20):
        torch.manual_seed(seed)
        found = evidence([(torch.randn(heads, dim, 96), torch.randn(heads, dim, 96))])
        assert found.verdict is None


def test_by_chance_t_is_as_likely_as_it_says():
    t = []
    for _ in range(300):
        layers = [(torch.randn(2, 16, 64), torch.randn(2, 16, 64)) for _ in range(2)]
        t += evidence(layers).t.values()
    assert torch.tensor(t).std() == pytest.approx(1, abs=0.12)
    assert torch.tensor(t).mean() == pytest.approx(0, abs=0.15)


@pytest.mark.parametrize("layout", ["half", "interleaved"])
def test_queries_tied_to_the_partner_of_each_key_are_seen(layout):
    k = torch.randn(6, 32, 200)
    q = torch.randn(6, 32, 200) + 0.7 * k.roll(16, 1)  # the other channel of its pair, in halves
    if layout == "interleaved":
        q, k = (rows[:, permutation(32, 32, layout)] for rows in (q, k))
    found = evidence([(q, k)])
    assert found.verdict == layout
    assert abs(found.t[OTHER[layout]]) < 4


def test_bands_that_are_strong_or_weak_speak_for_neither():
    band = torch.linspace(0, 4, 16).exp()
    for strong in (torch.cat((band, band)), band.repeat_interleave(2)):
        layers = [(torch.randn(4, 32, 96) * strong[:, None],) * 1 for _ in range(4)]
        assert (
            evidence((q, torch.randn(4, 32, 96) * strong[:, None]) for (q,) in layers).verdict
            is None
        )


def test_what_all_rows_share_speaks_for_neither():
    shared, faster = torch.randn(96), torch.linspace(3, 0, 16)
    much = torch.cat((faster, faster))[:, None]
    q, k = (torch.randn(4, 32, 96) + much * shared for _ in range(2))
    assert evidence([(q, k)]).verdict is None


def test_if_both_layouts_speak_neither_does():
    def said(half, interleaved, count=200):
        return Evidence({"half": half, "interleaved": interleaved}, {}, {}, count).verdict

    assert said(9, 4.4) == "half"
    assert said(4.4, 9) == "interleaved"
    assert said(9, 4.6) is said(3.9, 0) is said(9, 0, count=63) is None


def test_pairs_are_held_against_each_channel_and_the_partner_of_the_next():
    q, k = torch.randn(2, 8, 20), torch.randn(2, 8, 20)
    a = alignment(q, k)
    halves = [float(a[h, j, (j + 1) % 4 + 4]) for h in range(2) for j in range(4)]
    woven = [float(a[h, 2 * j, (2 * j + 3) % 8]) for h in range(2) for j in range(4)]
    found = evidence([(q, k)])
    assert found.others["half"] == pytest.approx(sum(halves) / 8)
    assert found.others["interleaved"] == pytest.approx(sum(woven) / 8)
    assert found.pairs["half"] == pytest.approx(float(a[:, range(4), range(4, 8)].mean()))


def test_no_layer_speaks_for_neither():
    assert evidence([]).verdict is None


def test_alignment_is_the_mean_cosine_both_ways_without_the_first_direction():
    q, k = torch.randn(2, 6, 20), torch.randn(2, 6, 20)
    rows = nn.functional.normalize(torch.cat((q, k), 1), dim=-1).double()
    for head in range(2):
        common = torch.linalg.svd(rows[head])[2][0]
        left = rows[head] - rows[head] @ common[:, None] * common
        cosines = torch.cosine_similarity(left[:6, None], left[None, 6:], dim=-1).abs()
        assert alignment(q, k)[head].double().allclose((cosines + cosines.T) / 2, atol=1e-5)


def test_strength_is_the_norm_of_both_rows_of_a_pair():
    weight = torch.randn(2, 8, 5)
    halves = weight.reshape(2, 2, 4, 5).square().sum((1, 3)).sqrt()
    woven = weight.reshape(2, 4, 2, 5).square().sum((2, 3)).sqrt()
    assert strength(weight, "half").float().allclose(halves)
    assert strength(weight, "interleaved").float().allclose(woven)
