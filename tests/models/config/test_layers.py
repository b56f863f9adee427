"""Layers that turn, and how far each sees, in models as they are published."""

from published import published

from posenc import NoPE, Sum
from posenc.encodings.temperature import Temperature
from posenc.models.config import specify
from posenc.models.config.spec import (
    Sharpened,
)


def bare(config):
    return [layer.encoding is None for layer in specify(config).main.layers]


def test_layers_without_encoding():
    """A 1 in `no_rope_layers` of Llama 4 and SmolLM3 says that the layer does turn."""
    fourth = [False, False, False, True] * 2
    assert bare(published("Llama-4-Scout-17B-16E (text)")) == fourth
    assert bare(published("SmolLM3-3B (class default)")) == fourth
    assert bare(published("EXAONE-4.0-32B") | {"sliding_window": 4096}) == fourth
    flags = {"no_rope_layers": [1, 0, 1, 1, 1, 1, 0, 1]}
    expected = [flag == 0 for flag in flags["no_rope_layers"]]
    assert bare(published("SmolLM3-3B (class default)") | flags) == expected


def test_llama_4_chunks_the_layers_that_turn():
    config = published("Llama-4-Scout-17B-16E (text)") | {"attention_chunk_size": 8192}
    config["no_rope_layers"] = [1, 1, 0, 1, 1, 1, 0, 1]
    spec = specify(config)
    assert [x.window for x in spec.layers] == [8192, 8192, None, 8192] * 2
    assert [x.encoding is None for x in spec.layers] == [False, False, True, False] * 2


def test_exaone_without_windows_turns_everywhere():
    assert not any(bare(published("EXAONE-4.0-32B") | {"sliding_window": None}))


def test_queries_sharpened_far_into_a_text():
    config = published("Llama-4-Scout-17B-16E (text)")
    config |= {"attn_temperature_tuning": True, "floor_scale": 8192, "attn_scale": 0.1}
    layers = specify(config).layers
    assert [layer.temperature for layer in layers] == ([None] * 3 + [Sharpened(8192, 0.1, 1)]) * 2
    made = specify(config).encodings()[3]
    assert isinstance(made, Sum)
    assert [type(part) for part in made] == [NoPE, Temperature]
    config = published("Ministral-3 (class default)")
    config["rope_scaling"] = {**config["rope_scaling"], "llama_4_scaling_beta": 0.1}
    assert {layer.temperature for layer in specify(config).layers} == {Sharpened(16384, 0.1, 0)}
