"""The study's decoder against a transformer written by hand, and encodings against each other."""

import pytest
import torch
from refusals import refused
from torch.nn.functional import gelu, layer_norm, linear

from posenc import ALiBi, Encoding, NoPE, RoPE, Sinusoidal, Sum, axial, masks
from posenc.catalog import CATALOG, create
from posenc.lab.study.cell import Profile
from posenc.lab.study.model import Transformer

SMALL = Profile(width=32, heads=2, layers=2)
SYMBOLS = 11


def decoder(make=NoPE, **options):
    return Transformer(SYMBOLS, SMALL, make, **options)


def texts(count=2, tokens=7):
    return torch.randint(SYMBOLS, (count, tokens), generator=torch.Generator().manual_seed(1))


class Own(Encoding):
    """A stranger's: scores fall with the offset, weighed by the query."""

    def on_scores(self, q, k, q_at, k_at, scale):
        return lambda b, h, i, j: -0.1 * (q_at[0, 0, i] - k_at[0, 0, j]).abs()


def test_the_decoder_is_a_pre_norm_transformer():
    """Against torch's functions alone, head by head."""
    model, tokens = decoder(seed=3), texts()
    w = dict(model.named_parameters())
    x = w["embedding.weight"][tokens]
    for block in range(2):
        name = f"blocks.{block}."
        get = lambda part, name=name: (w[f"{name}{part}.weight"], w[f"{name}{part}.bias"])  # noqa: E731
        y = layer_norm(x, (32,), *get("before_attention"))
        q, k, v = (linear(y, *get(f"attention.{part}")) for part in "qkv")
        heads = []
        for h in range(2):
            one = slice(16 * h, 16 * h + 16)
            scores = q[..., one] @ k[..., one].mT / 4
            scores = scores.masked_fill(torch.ones(7, 7).triu(1).bool(), -torch.inf)
            heads.append(scores.softmax(-1) @ v[..., one])
        x = x + linear(torch.cat(heads, -1), *get("attention.out"))
        y = layer_norm(x, (32,), *get("before_mlp"))
        x = x + linear(gelu(linear(y, *get("mlp.0"))), *get("mlp.2"))
    x = layer_norm(x, (32,), w["norm.weight"], w["norm.bias"])
    torch.testing.assert_close(model(tokens), x @ w["head.weight"].mT)


def test_the_spread_of_weights_keeps_the_size_of_what_they_read():
    model = Transformer(64, Profile(width=128, heads=2, layers=2), NoPE)
    weights = dict(model.named_parameters())
    spreads = {
        "embedding": 1,
        "blocks.0.attention.q": 128**-0.5,
        "blocks.0.mlp.0": 128**-0.5,
        "blocks.1.mlp.2": (4 * 512) ** -0.5,
        "blocks.1.attention.out": (4 * 128) ** -0.5,
    }
    for name, spread in spreads.items():
        assert weights[f"{name}.weight"].std().item() == pytest.approx(spread, rel=0.05)


@pytest.mark.parametrize("card", CATALOG, ids=lambda card: card.slug)
def test_every_encoding_runs_and_moves_no_other_weight(card):
    """Shared weights are equal to the bit for every encoding."""
    model = decoder(lambda: create(card.slug, 16, 2), seed=5, encoding_seed=9)
    shared, plain = model.shared, decoder(seed=5, encoding_seed=4).shared
    assert shared.keys() == plain.keys()
    assert all(torch.equal(shared[name], plain[name]) for name in plain)
    logits = model(texts())
    assert logits.shape == (2, 7, SYMBOLS)
    logits.square().sum().backward()
    for name, weight in model.named_parameters():
        assert weight.grad is not None, f"{card.name}: {name} is never used"


def test_another_seed_draws_other_weights():
    one, other = decoder(seed=0).shared, decoder(seed=1).shared
    drawn = [name for name in one if name.endswith("weight") and one[name].std() > 0]
    assert len(drawn) == 14
    assert not any(torch.equal(one[name], other[name]) for name in drawn)


def test_what_an_encoding_learns_is_drawn_after_its_own_seed():
    one, other, again = (
        decoder(lambda: create("learned", 16, 2), encoding_seed=seed) for seed in (0, 1, 0)
    )
    first = lambda model: next(model.blocks[0].attention.encoding.parameters())  # noqa: E731
    assert torch.equal(first(one), first(again))
    assert not torch.equal(first(one), first(other))


def test_rows_are_added_once_below_the_first_block():
    """Against rows added to the embeddings of a model without an encoding."""
    tokens, rows = texts(), Sinusoidal(32)(torch.zeros(1, 7, 32))
    plain, model = decoder(), decoder(lambda: Sinusoidal(32))
    x = plain.embedding(tokens) + rows
    for block in plain.blocks:
        x = block(x)
    torch.testing.assert_close(model(tokens), plain.head(plain.norm(x)))
    assert [type(one).__name__ for one in model.encodings()] == ["Sinusoidal", "NoPE"]


def test_of_a_sum_the_upper_layers_have_all_but_the_rows():
    model = decoder(lambda: Sum(Sinusoidal(32), Sum(RoPE(16), ALiBi(2))))
    first, second = model.encodings()
    assert first.acts_on == ("on_embeddings", "on_queries", "on_keys", "on_scores")
    assert second.acts_on == ("on_queries", "on_keys", "on_scores")
    assert torch.isfinite(model(texts())).all()


def test_an_encoding_of_ones_own_runs():
    model, plain = decoder(Own), decoder()
    assert not torch.allclose(model(texts()), plain(texts()))


def test_points_of_several_axes_lie_on_the_diagonal():
    """Against the positions given as points."""
    model = decoder(lambda: RoPE(axial(16)))
    points = torch.arange(7).unsqueeze(-1).expand(7, 2)
    x = model.embedding(texts())
    for block in model.blocks:
        x = block(x, points)
    torch.testing.assert_close(model(texts()), model.head(model.norm(x)))


def test_no_token_sees_what_follows():
    model, tokens = decoder(lambda: RoPE(16)), texts()
    changed = tokens.clone()
    changed[:, 4:] = (changed[:, 4:] + 1) % SYMBOLS
    torch.testing.assert_close(model(tokens)[:, :4], model(changed)[:, :4])
    assert not torch.allclose(model(tokens)[:, 4:], model(changed)[:, 4:])


@pytest.mark.parametrize(
    "slug", ["nope", "rope", "alibi", "t5", "sinusoidal", "learned", "fox", "normalized"]
)
def test_generating_with_a_cache_equals_reading_the_whole_text_each_time(slug):
    model, tokens = decoder(lambda: create(slug, 16, 2)).eval(), texts()
    expected = tokens
    for _ in range(5):
        likeliest = model(expected)[:, -1].argmax(-1, keepdim=True)
        expected = torch.cat((expected, likeliest), -1)
    assert torch.equal(model.generate(tokens, 5), expected)


def test_an_encoding_of_another_size_is_refused():
    with refused(ValueError, "`dim`", 8):
        decoder(lambda: RoPE(8))


def test_a_mask_is_joined_with_the_causal_one():
    model, tokens = decoder(), texts()
    near, far = model(tokens, mask=masks.window(1)), model(tokens)
    torch.testing.assert_close(near[:, 0], far[:, 0])
    alone = torch.cat([model(tokens[:, n : n + 1]) for n in range(7)], 1)
    torch.testing.assert_close(near, alone)
