"""Inkling against its formula by loops, and against the attention of transformers."""

import math

import pytest
import torch

from posenc import Inkling, attend, create, masks
from posenc.attention.scores import scores

HEADS, DIM, TOKENS = 4, 8, 9


def made(**options):
    encoding = Inkling(HEADS * DIM, HEADS, rank=3, reach=5, **options)
    for weight in encoding.parameters():
        torch.nn.init.normal_(weight)
    return encoding


@pytest.mark.parametrize("floor", [None, 4])
def test_each_token_mixes_its_bias_from_the_profiles(floor):
    encoding, x = made(floor=floor, strength=0.5), torch.randn(2, TOKENS, HEADS * DIM)
    q, k = torch.randn(2, 2, HEADS, TOKENS, DIM)
    pos = torch.tensor([0, 1, 2, 4, 7, 8, 11, 15, 16])
    found = scores(encoding, q, k, pos, pos, x=x).detach()
    bank = encoding.bank.detach()
    for b in range(2):
        for h in range(HEADS):
            for i, p in enumerate(pos.tolist()):
                shares = encoding.mix.weight.detach()[3 * h : 3 * h + 3] @ x[b, i]
                growth = 1.0 if floor is None else 1 + 0.5 * math.log(max(1, (p + 1) / floor))
                for j, r in enumerate(pos.tolist()):
                    score = float(q[b, h, i] @ k[b, h, j]) / DIM**0.5
                    if 0 <= p - r < 5:
                        score += float(shares @ bank[:, p - r])
                    assert found[b, h, i, j].item() == pytest.approx(growth * score, abs=1e-4)


def test_it_is_the_attention_of_transformers():
    """A layer without a window: its queries grow beyond `log_scaling_n_floor`."""
    folder = pytest.importorskip("transformers.models.inkling")
    module = folder.modeling_inkling
    config = folder.configuration_inkling.InklingTextConfig(
        hidden_size=HEADS * DIM, num_attention_heads=HEADS, num_key_value_heads=2, head_dim=DIM,
        d_rel=3, rel_extent=5, log_scaling_n_floor=4, log_scaling_alpha=0.5, num_hidden_layers=1,
        layer_types=["hybrid"], swa_num_attention_heads=HEADS, swa_num_key_value_heads=2,
        swa_head_dim=DIM,
    )  # fmt: skip
    config._attn_implementation = "eager"
    layer = module.InklingAttention(config, 0)
    for weight in layer.parameters():
        torch.nn.init.normal_(weight, std=0.3)
    seen = {}

    def kept(attention, q, k, v, mask, position_bias, scaling, **rest):
        seen.update(q=q, k=k, v=v, bias=position_bias, scale=scaling)
        return module.eager_attention_forward(
            attention, q, k, v, mask, position_bias=position_bias, scaling=scaling, **rest
        )

    with pytest.MonkeyPatch.context() as patch:
        functions = module.ALL_ATTENTION_FUNCTIONS
        patch.setattr(type(functions), "get_interface", lambda *_: kept)
        x = torch.randn(1, TOKENS, HEADS * DIM)
        mask = torch.full((1, 1, TOKENS, TOKENS), float("-inf")).triu(1)
        out, _ = layer(x, attention_mask=mask)
    encoding = Inkling(HEADS * DIM, HEADS, rank=3, reach=5, floor=4, strength=0.5)
    encoding.mix.weight.data = layer.r_proj.weight.data
    encoding.bank.data = layer.rel_logits_proj.proj.data
    pos = torch.arange(TOKENS)
    at = encoding.on_hidden(x, encoding.prepare(pos[None, None]))
    growth = 1 + 0.5 * ((pos + 1) / 4).clamp_min(1).log()[:, None]
    mine = attend(
        seen["q"] / growth, seen["k"], seen["v"], encoding, at, mask=masks.causal(),
        scale=seen["scale"],
    )  # fmt: skip
    made = layer.o_proj(mine.transpose(1, 2).flatten(2))
    torch.testing.assert_close(made, out)


def test_distances_beyond_the_reach_have_no_bias():
    encoding, x = made(), torch.randn(1, TOKENS, HEADS * DIM)
    none = torch.zeros(1, HEADS, TOKENS, DIM)
    bias = scores(encoding, none, none, torch.arange(TOKENS), torch.arange(TOKENS), x=x)
    apart = torch.arange(TOKENS)[:, None] - torch.arange(TOKENS)
    assert bias[..., (apart < 0) | (apart >= 5)].eq(0).all()
    assert bias[..., (apart >= 0) & (apart < 5)].ne(0).all()


def test_positions_must_be_whole_numbers():
    encoding = create("inkling", DIM, HEADS)
    with pytest.raises(TypeError, match=r"`pos`.*integers.*Inkling"):
        encoding.on_hidden(torch.randn(1, 3, HEADS * DIM), torch.rand(1, 1, 3))
