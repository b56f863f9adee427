"""Against files that gguf itself writes, and what is on record of the models they name."""

import gguf
import numpy as np
import pytest

from posenc.models.config import read
from posenc.models.files.errors import ModelError, Unread


def written(path, architecture, tensors=(), **metadata):
    """A GGUF file with this metadata; keys with __ for a dot."""
    writer = gguf.GGUFWriter(path, architecture)
    for key, value in metadata.items():
        name = f"{architecture}.{key.replace('__', '.')}"
        kind = {str: "string", int: "uint32", float: "float32"}[type(value)]
        getattr(writer, f"add_{kind}")(name, value)
    for name in ("token_embd.weight", *tensors):
        writer.add_tensor(name, np.zeros((2, 4), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


SIZES = {"context_length": 4096, "embedding_length": 64, "block_count": 3}
SIZES |= {"attention__head_count": 4, "attention__head_count_kv": 2}


@pytest.mark.parametrize(
    ("architecture", "model", "layout"),
    [
        ("llama", "llama", "interleaved"),
        ("qwen2", "qwen2", "half"),
        ("phi3", "phi3", "half"),
        ("granite", "granite", "interleaved"),
    ],
)
def test_the_layout_is_that_of_the_file(tmp_path, architecture, model, layout):
    """llama.cpp reorders a Llama's queries and keys, and leaves a Qwen's as they are."""
    path = written(tmp_path / "m.gguf", architecture, rope__freq_base=5e5, **SIZES)
    spec = read(path)
    (turn,) = spec.rotary
    assert (spec.model, len(spec.layers), spec.heads, spec.groups) == (model, 3, 4, 2)
    assert (turn.layout, turn.base, turn.dim, spec.context) == (layout, 5e5, 16, 4096)
    assert "read from the metadata of m.gguf" in spec.notes[-1]


def test_scaling_and_partial_rotation(tmp_path):
    scaling = {"rope__scaling__type": "yarn", "rope__scaling__factor": 4.0}
    scaling["rope__scaling__original_context_length"] = 1024
    path = written(tmp_path / "m.gguf", "gptneox", rope__dimension_count=4, **scaling, **SIZES)
    (turn,) = read(path).rotary
    assert (turn.method, turn.factor, turn.trained) == ("yarn", 4.0, 1024)
    assert (turn.turned, turn.dim) == (4, 16)


def test_channels_that_turn_count_also_where_transformers_turns_all(tmp_path):
    """llama.cpp reads them for every architecture; transformers' Llama ignores such a key."""
    path = written(tmp_path / "m.gguf", "llama", rope__dimension_count=8, **SIZES)
    (turn,) = read(path).rotary
    assert (turn.turned, turn.dim) == (8, 16)
    assert not any("ignores" in note for note in read(path).notes)


def test_a_head_cannot_turn_more_channels_than_it_has(tmp_path):
    path = written(tmp_path / "m.gguf", "llama", rope__dimension_count=20, **SIZES)
    with pytest.raises(ModelError, match=r"dimension_count: is of a head's .* got 20, allowed: 1"):
        read(path)


def test_gemma_has_a_local_base_that_its_file_does_not_say(tmp_path):
    more = {"attention__key_length": 32, "attention__sliding_window": 512}
    sizes = SIZES | {"block_count": 6}
    path = written(tmp_path / "m.gguf", "gemma3", rope__freq_base=1e6, **more, **sizes)
    layers = read(path).layers
    assert [(x.window, x.encoding.base) for x in layers] == [(512, 1e4)] * 5 + [(None, 1e6)]
    assert layers[0].encoding.dim == 32


def test_what_is_not_read_says_so(tmp_path):
    with pytest.raises(Unread, match=r"general\.architecture: is not read by posenc, got 'rwkv7'"):
        read(written(tmp_path / "a.gguf", "rwkv7", **SIZES))
    factors = written(tmp_path / "b.gguf", "llama", ["rope_freqs.weight"], **SIZES)
    with pytest.raises(Unread, match=r"rope_freqs\.weight: divides the frequencies"):
        read(factors)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("rope__freq_base", float("nan"), "rope_theta: must be a number, got nan"),
        ("rope__freq_base", 0.0, "rope_theta: must be a number, got 0"),
        ("rope__dimension_count", 3, "channels turn in pairs"),
        ("attention__head_count", 0, "num_attention_heads: must be a whole number, got 0"),
        ("rope__scaling__type", "magic", "rope_type: is not known, got 'magic'"),
    ],
)
def test_metadata_that_cannot_be_is_refused(tmp_path, key, value, message):
    with pytest.raises(ModelError, match=message):
        read(written(tmp_path / "m.gguf", "llama", **SIZES | {key: value}))


@pytest.mark.parametrize("scaling", ["yarn", "dynamic", "ntk"])
def test_one_pair_cannot_be_scaled_from_the_fastest_to_the_slowest(tmp_path, scaling):
    keys = {"rope__scaling__type": scaling, "rope__scaling__factor": 4.0}
    path = written(tmp_path / "m.gguf", "llama", rope__dimension_count=2, **keys, **SIZES)
    message = rf"llama\.rope\.dimension_count: {scaling} runs from the fastest pair to the slowest"
    with pytest.raises(ModelError, match=message):
        read(path)
