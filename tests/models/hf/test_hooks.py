"""Test a model's attention under its hooks against `attend` with the same arguments."""

from types import SimpleNamespace

import torch
from refusals import refused

from posenc import ALiBi, NoPE, attend, masks
from posenc.models.hf.hooks import Attention, ModelHook
from posenc.models.hf.registry import CALL, attention_function

POS = torch.arange(6).unsqueeze(0)


def called(scale=None, causal=True, **more):
    q, k, v = (torch.randn(1, n, 6, 8) for n in (4, 2, 2))
    module = torch.nn.Module()
    module.is_causal = causal
    setattr(module, CALL, Attention(NoPE(), POS, None, ALiBi(4), POS, POS, 6, 0, scale))
    return q, k, v, attention_function(module, q, k, v, None, 0.3, **more)[0].transpose(1, 2)


def test_a_cap_and_sinks_that_a_model_hands_to_its_attention_are_heeded():
    sinks = torch.randn(4)
    q, k, v, out = called(softcap=0.5, s_aux=sinks)
    more = dict(mask=masks.causal(), scale=0.3, softcap=0.5, sinks=sinks)
    torch.testing.assert_close(out, attend(q, k, v, ALiBi(4), POS, **more))


def test_positions_of_three_axes_are_those_of_a_text_where_the_axes_agree():
    """Qwen2-VL passes positions as (axis, batch, token)."""
    hook, x = SimpleNamespace(_refuse_packed=lambda *_: None), torch.zeros(2, 6, 8)
    pos = torch.randint(100, (2, 6))
    given = {"position_ids": pos.expand(3, 2, 6)}
    torch.testing.assert_close(ModelHook.positions(hook, None, given, x, 0), pos)
    given = {"position_ids": torch.stack((pos, pos, pos + 1))}
    with refused(ValueError, "`position_ids`", "(batch, token)"):
        ModelHook.positions(hook, None, given, x, 0)


def test_an_encoder_without_a_mask_sees_everything():
    q, k, v, out = called(causal=False)
    torch.testing.assert_close(out, attend(q, k, v, ALiBi(4), POS, scale=0.3))


def test_a_scale_that_an_encoding_states_replaces_the_models():
    q, k, v, out = called(scale=0.7)
    torch.testing.assert_close(out, attend(q, k, v, ALiBi(4), POS, mask=masks.causal(), scale=0.7))
