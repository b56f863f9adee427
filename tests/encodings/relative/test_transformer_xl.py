"""Transformer-XL against the four terms of its paper, and transformers' XLNet and Conformers."""

import copy
import math

import pytest
import torch
from refusals import refused
from transformers import ParakeetEncoderConfig, Wav2Vec2ConformerConfig, XLNetConfig
from transformers.models.parakeet.modeling_parakeet import (
    ParakeetEncoderAttention,
    ParakeetEncoderRelPositionalEncoding,
)
from transformers.models.wav2vec2_conformer.modeling_wav2vec2_conformer import (
    Wav2Vec2ConformerRelPositionalEmbedding,
    Wav2Vec2ConformerSelfAttention,
)
from transformers.models.xlnet.modeling_xlnet import XLNetModel, XLNetRelativeAttention

from posenc import ALiBi, Sum, TransformerXL, attend, masks


def sinusoid(offset, width):
    angles = [offset * 10_000 ** (-2 * j / width) for j in range(width // 2)]
    return torch.tensor([f(a) for f in (math.sin, math.cos) for a in angles], dtype=torch.float64)


def by_loops(q, k, v, xl, q_pos, k_pos, scale):
    logits = torch.zeros(*q.shape[:-1], k.shape[-2], dtype=torch.float64)
    for b, h, i, j in torch.cartesian_prod(*map(torch.arange, logits.shape)).tolist():
        key = k[b, h * k.shape[1] // q.shape[1], j]
        distance = xl.project[h] @ sinusoid(q_pos[i] - k_pos[j], xl.project.shape[-1])
        a, b_ = q[b, h, i] @ key, q[b, h, i] @ distance
        c, d = xl.u[h, 0] @ key, xl.v[h, 0] @ distance
        logits[b, h, i, j] = (a + b_ + c + d) * scale
    return logits.softmax(-1) @ v.repeat_interleave(q.shape[1] // v.shape[1], 1)


def loud(*args, **options):
    xl = TransformerXL(*args, **options).double()
    xl.u.data.normal_(), xl.v.data.normal_()
    return xl


@pytest.mark.parametrize("scale", [None, 0.7])
@pytest.mark.parametrize("width", [None, 6])
def test_equals_the_four_terms_of_the_paper(width, scale):
    xl = loud(4, heads=2, width=width)
    q, k, v = torch.randn(3, 2, 2, 5, 4, dtype=torch.float64).unbind()
    with torch.no_grad():
        expected = by_loops(q, k, v, xl, range(5), range(5), 0.5 if scale is None else scale)
        torch.testing.assert_close(attend(q, k, v, xl, scale=scale), expected, rtol=0, atol=1e-6)


def test_keys_may_stand_elsewhere_as_in_its_memory():
    xl, (q_pos, k_pos) = loud(4, heads=2), ([7, 8, 9], [0, 3, 8, 9, 40])
    q, k = (torch.randn(1, 2, n, 4, dtype=torch.float64) for n in (3, 5))
    with torch.no_grad():
        at, k_at = (xl.prepare(torch.tensor(pos)) for pos in (q_pos, k_pos))
        expected = by_loops(q, k, k, xl, q_pos, k_pos, 0.5)
        torch.testing.assert_close(attend(q, k, k, xl, at, k_at), expected, rtol=0, atol=1e-6)


def test_heads_in_groups_share_keys_but_not_what_they_know_of_distance():
    xl, q = loud(4, heads=4), torch.randn(1, 4, 5, 4, dtype=torch.float64)
    k, v = torch.randn(2, 1, 2, 5, 4, dtype=torch.float64).unbind()
    with torch.no_grad():
        expected = by_loops(q, k, v, xl, range(5), range(5), 0.5)
        torch.testing.assert_close(attend(q, k, v, xl), expected, rtol=0, atol=1e-6)


def test_keys_can_be_cached():
    xl, (q, k, v) = loud(4, heads=2).float(), torch.randn(3, 1, 2, 6, 4).unbind()
    whole = attend(q, k, v, xl, mask=masks.causal())[..., -1:, :]
    last = attend(
        q[..., -1:, :], k, v, xl, xl.prepare(torch.tensor([5])), xl.prepare(torch.arange(6))
    )
    torch.testing.assert_close(whole, last)


def test_attends_as_xlnet_does_with_its_weights_and_memory():
    config = XLNetConfig(d_model=8, n_head=2, d_inner=8, n_layer=1, dropout=0.0)
    theirs, ours = XLNetRelativeAttention(config), TransformerXL(4, heads=2)
    for parameter in theirs.parameters():
        parameter.data.normal_()
    ours.u.data.copy_(theirs.r_w_bias.data[:, None])
    ours.v.data.copy_(theirs.r_r_bias.data[:, None])
    ours.project.data.copy_(theirs.r.data.permute(1, 2, 0))
    q, k, v = torch.randn(1, 2, 3, 4), torch.randn(1, 2, 5, 4), torch.randn(1, 2, 5, 4)
    inverse = 1 / 10_000 ** (torch.arange(0, 8, 2.0) / 8)
    distances = XLNetModel.positional_embedding(torch.arange(5, -3, -1.0), inverse)
    by_token = [x.permute(2, 0, 1, 3) for x in (q, k, v)]
    projected = torch.einsum("ibh,hnd->ibnd", distances, theirs.r)
    expected = theirs.rel_attn_core(*by_token, projected).permute(1, 2, 0, 3)
    at, k_at = ours.prepare(torch.arange(2, 5)), ours.prepare(torch.arange(5))
    torch.testing.assert_close(attend(q, k, v, ours, at, k_at), expected, rtol=1e-4, atol=1e-5)


def test_an_odd_width_is_refused():
    with refused(ValueError, "`dim`", 2, 9):
        TransformerXL(3, heads=3)


@pytest.mark.parametrize("path", ["auto", "blocks"])
@pytest.mark.parametrize("tokens", [3, 40])
@pytest.mark.parametrize("alone", [True, False])
def test_gradients_in_16_bits_are_those_of_float64(path, tokens, alone):
    """Beside ALiBi too, where the vectors of offsets can be appended to keys as channels.

    bfloat16 holds 8 bits: each number is off by up to 0.4 %, and so may be a gradient.
    """
    for seed in range(4):
        torch.manual_seed(seed)
        encoding = TransformerXL(12, 4)
        encoding = encoding if alone else Sum(encoding, ALiBi(4))
        q, k, v, weight = torch.randn(4, 2, 4, tokens, 12).bfloat16()
        gradients = []
        for dtype, how in ((torch.float64, "reference"), (torch.bfloat16, path)):
            mine = copy.deepcopy(encoding)
            mine = mine.double() if dtype is torch.float64 else mine
            out = attend(*(x.to(dtype) for x in (q, k[:, :1], v[:, :1])), mine, implementation=how)
            of = (out * weight.to(dtype)).sum()
            gradients.append(torch.autograd.grad(of, [*mine.parameters()], allow_unused=True))
        for right, its in zip(*gradients, strict=True):
            if right is not None:
                assert (its.double() - right).norm() <= 0.008 * right.norm()


def conformer_sides(theirs, names, x):
    """Return q, k, v and a TransformerXL with the weights of a Conformer's attention."""
    q, k, v, positions, u, v_bias = (getattr(theirs, name) for name in names)
    heads, dim = u.shape
    xl, weight = TransformerXL(dim, heads), positions.weight.unflatten(0, (heads, dim))
    # Sines and cosines alternate in the channels of W
    xl.project.data = torch.cat((weight[..., 0::2], weight[..., 1::2]), -1)
    for bias in (u, v_bias):
        torch.nn.init.normal_(bias)
    xl.u.data, xl.v.data = u.unsqueeze(1), v_bias.unsqueeze(1)
    return *(part(x).unflatten(-1, (heads, dim)).transpose(1, 2) for part in (q, k, v)), xl


def test_equals_a_conformer_in_both_directions():
    """Against the relative shift of Wav2Vec2-Conformer in transformers."""
    config = Wav2Vec2ConformerConfig(
        hidden_size=16, num_attention_heads=2, position_embeddings_type="relative"
    )
    theirs, x = Wav2Vec2ConformerSelfAttention(config).eval(), torch.randn(2, 7, 16)
    names = "linear_q", "linear_k", "linear_v", "linear_pos", "pos_bias_u", "pos_bias_v"
    q, k, v, xl = conformer_sides(theirs, names, x)
    made = theirs.linear_out(attend(q, k, v, xl).transpose(1, 2).flatten(2))
    expected = theirs(x, None, Wav2Vec2ConformerRelPositionalEmbedding(config)(x))[0]
    torch.testing.assert_close(made, expected)


def test_equals_the_encoder_of_parakeet():
    config = ParakeetEncoderConfig(hidden_size=16, num_attention_heads=2)
    config._attn_implementation = "eager"
    theirs, x = ParakeetEncoderAttention(config, 0).eval(), torch.randn(2, 7, 16)
    names = "q_proj", "k_proj", "v_proj", "relative_k_proj", "bias_u", "bias_v"
    q, k, v, xl = conformer_sides(theirs, names, x)
    made = theirs.o_proj(attend(q, k, v, xl).transpose(1, 2).flatten(2))
    expected = theirs(x, ParakeetEncoderRelPositionalEncoding(config)(x))[0]
    torch.testing.assert_close(made, expected)


def test_equals_the_encoder_of_nemotron_asr_streaming():
    from transformers.models.nemotron_asr_streaming import modeling_nemotron_asr_streaming as code

    config = code.NemotronAsrStreamingEncoderConfig(hidden_size=16, num_attention_heads=2)
    config._attn_implementation, config.num_key_value_heads = "eager", 2
    theirs, x = code.NemotronAsrStreamingEncoderAttention(config, 0).eval(), torch.randn(2, 7, 16)
    names = "q_proj", "k_proj", "v_proj", "relative_k_proj", "bias_u", "bias_v"
    q, k, v, xl = conformer_sides(theirs, names, x)
    made = theirs.o_proj(attend(q, k, v, xl).transpose(1, 2).flatten(2))
    expected = theirs(x, code.NemotronAsrStreamingEncoderRelPositionalEncoding(config)(x))[0]
    torch.testing.assert_close(made, expected)


def test_equals_the_conformers_of_fastspeech2():
    from transformers.models.fastspeech2_conformer import modeling_fastspeech2_conformer as code

    config = code.FastSpeech2ConformerConfig(hidden_size=16, encoder_num_attention_heads=2)
    module, x = config.encoder_config, torch.randn(2, 7, 16)
    theirs = code.FastSpeech2ConformerAttention(config, module).eval()
    names = "linear_q", "linear_k", "linear_v", "linear_pos", "pos_bias_u", "pos_bias_v"
    q, k, v, xl = conformer_sides(theirs, names, x)
    made = theirs.linear_out(attend(q, k, v, xl).transpose(1, 2).flatten(2))
    _, positions = code.FastSpeech2ConformerRelPositionalEncoding(config, module).eval()(x)
    torch.testing.assert_close(made, theirs(x, None, positions)[0])
