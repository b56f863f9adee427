"""Test the reading of BLT, whose class passes one window to two of its four parts."""

import pytest

pytest.importorskip("transformers")

import torch
from transformers import BltConfig
from transformers.models.blt import modeling_blt

from posenc.models.config import specify
from posenc.models.config.families import blt

LOCAL = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=2, hidden_size_global=64)
PARTS = dict(
    patcher_config=dict(hidden_size=32, num_hidden_layers=1, num_attention_heads=2),
    encoder_config=LOCAL,
    decoder_config=LOCAL,
    global_config=dict(hidden_size=64, num_hidden_layers=3, num_attention_heads=4),
)


@pytest.mark.parametrize("window", [None, 5, "unstated"])
@torch.no_grad()
def test_bytes_are_seen_within_the_window_of_the_whole(window, monkeypatch):
    """Compare the masks that reach each layer of a model, on 12 bytes of one patch each."""
    stated = {} if window == "unstated" else {"local_attention_window_len": window}
    seen = {}

    def attend(module, q, k, v, mask, **more):
        seen.setdefault(type(module.config).model_type, []).append((mask, q.shape[1:]))
        return own(module, q, k, v, mask, **more)

    own = modeling_blt.eager_attention_forward
    monkeypatch.setattr(modeling_blt, "eager_attention_forward", attend)
    config = BltConfig(**PARTS, **stated, encoder_hash_byte_group_vocab=20, vocab_size=20)
    config._attn_implementation = "eager"
    model = modeling_blt.BltModel(config).eval()
    tokens = torch.arange(12)[None] + 4
    model(tokens, patch_lengths=torch.ones(1, 12, dtype=torch.long), use_cache=False)
    spec = specify({"model_type": "blt", **PARTS, **stated})
    every = torch.arange(12)
    for name in ("encoder", "decoder", "global"):
        part = spec.parts[f"{name}_config"]
        calls = [call for call in seen[part.model] if call[1][0] == part.heads]
        for layer in part.layers:
            allowed = layer.mask()(0, 0, every[:, None], every[None])
            masks = [call[0][0, 0] for call in calls if call[0].shape[-2:] == (12, 12)]
            assert any(torch.equal(mask == 0, allowed) for mask in masks)
    assert spec.text_keys == ("global_config",)


def test_positions_of_the_global_transformer_are_patches():
    assert blt.PATCHES in specify({"model_type": "blt_global_transformer"}).notes
