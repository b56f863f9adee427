"""Test the reading of Conformers, whose attention is compared in test_transformer_xl.py."""

import pytest

from posenc.models.config import specify
from posenc.models.config.families import conformer
from posenc.models.config.spec import Projected


def test_fastspeech2_has_two_bidirectional_stacks():
    file = {"model_type": "fastspeech2_conformer", "hidden_size": 64, "decoder_layers": 3}
    spec = specify({**file, "decoder_num_attention_heads": 4})
    encoder, decoder = spec.parts["encoder"], spec.parts["decoder"]
    assert {layer.encoding for layer in encoder.layers} == {Projected(32, 2, 64, False)}
    assert {layer.encoding for layer in decoder.layers} == {Projected(16, 4, 64, False)}
    assert (len(encoder.layers), len(decoder.layers)) == (4, 3)
    assert not any(layer.causal for layer in (*encoder.layers, *decoder.layers))


def test_chunks_of_nemotron_asr_streaming_are_named():
    pytest.importorskip("transformers")
    from transformers.models.nemotron_asr_streaming.modeling_nemotron_asr_streaming import (
        chunked_limited_mask_function,
    )

    spec = specify({"model_type": "nemotron_asr_streaming_encoder"})
    assert {layer.unsupported for layer in spec.layers} == {conformer.CHUNKS}
    assert {(layer.causal, layer.window) for layer in spec.layers} == {(False, None)}
    assert any(conformer.CHUNKS in note for note in spec.notes)
    # Chunks of 14 frames, of which a query sees its own and five before
    import torch

    sees, at = chunked_limited_mask_function(70, 13), torch.tensor(100)
    seen = [key for key in range(200) if sees(0, 0, at, torch.tensor(key))]
    assert (seen[0], seen[-1]) == (28, 111)
