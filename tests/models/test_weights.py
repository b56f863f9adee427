"""Test read tensors against the libraries that wrote them, safetensors and gguf."""

import json
import struct

import gguf
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from refusals import refused
from safetensors.torch import save_file
from weight_files import FUZZ, read_or_refuse, same, save_gguf, weights

from posenc.models.files.errors import ModelError


def test_a_tensor_is_the_readers_own(tmp_path):
    save_file({"a": torch.ones(2)}, tmp_path / "model.safetensors")
    found = weights(tmp_path)
    found["a"].zero_()
    assert found["a"].equal(torch.ones(2))


def test_a_tensor_too_large_for_memory_is_refused_before_it_is_read(tmp_path):
    path = tmp_path / "model.safetensors"
    entry = {"dtype": "F32", "shape": [2**31], "data_offsets": [0, 2**33]}
    header = json.dumps({"a": entry}).encode()
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(header)) + header)
        file.truncate(8 + len(header) + 2**33)  # a file of nothing, which takes no room on disk
    with refused(ModelError, "a", 8, "GiB", 4):
        weights(path)["a"]


def sharded(folder, **shards):
    places = {}
    for file, tensors in shards.items():
        save_file(tensors, folder / f"{file}.safetensors", {"format": "pt", "of": file})
        places |= {name: f"{file}.safetensors" for name in tensors}
    body = {"metadata": {"total_size": 0}, "weight_map": places}
    (folder / "model.safetensors.index.json").write_text(json.dumps(body))


def test_shards_are_one_dict(tmp_path):
    first = {"a": torch.randn(3), "b": torch.randn(2, 2)}
    second = {"c": torch.randn(4).half()}
    sharded(tmp_path, one=first, two=second)
    for path in (tmp_path, tmp_path / "model.safetensors.index.json"):
        found = weights(path)
        assert set(found) == {"a", "b", "c"}
        assert found.infos["c"].file.name == "two.safetensors"
        assert found.metadata["of"] == "one"
        for name, tensor in (first | second).items():
            same(found[name], tensor)


def test_an_index_says_which_shard_counts(tmp_path):
    sharded(tmp_path, one={"a": torch.ones(1)}, two={"b": torch.ones(2)})
    save_file({"a": torch.zeros(1), "b": torch.ones(2)}, tmp_path / "two.safetensors")
    found = weights(tmp_path)
    assert set(found) == {"a", "b"}
    assert found["a"].equal(torch.ones(1))


def test_an_index_of_too_many_shards_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("posenc.models.weights.MOST_SHARDS", 1)
    sharded(tmp_path, one={"a": torch.ones(1)}, two={"b": torch.ones(2)})
    with refused(ModelError, "weight_map", 2):
        weights(tmp_path)


def test_the_same_name_in_two_files_is_refused(tmp_path):
    for file in ("a", "b"):
        save_file({"x": torch.ones(1)}, tmp_path / f"{file}.safetensors")
    with refused(ModelError, "b.safetensors", "a.safetensors"):
        weights(tmp_path)


def test_a_config_has_no_weights(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ModelError, match="contains a config but no weights"):
        weights(tmp_path)


@FUZZ
@given(
    kind=st.sampled_from(["safetensors", "gguf"]),
    raw=st.binary(max_size=200),
    start=st.sampled_from(
        [b"", b"\x10" + bytes(7), b"GGUF\x03\0\0\0", b"GGUF\x03\0\0\0\x01" + bytes(7)]
    ),
)
def test_random_bytes_are_read_or_refused(tmp_path, kind, raw, start):
    path = tmp_path / f"model.{kind}"
    path.write_bytes(start + raw)
    read_or_refuse(path)


@FUZZ
@given(data=st.data())
def test_one_byte_changed_is_read_or_refused(tmp_path, data):
    path = tmp_path / "model.gguf"
    rows = np.zeros((2, 34), np.uint8), gguf.GGMLQuantizationType.Q8_0
    save_gguf(path, {"a": np.ones((2, 3), np.float32)}, {"b": rows}, n=("array", ["x", "y"]))
    raw = bytearray(path.read_bytes())
    at = data.draw(st.integers(0, len(raw) - 1))
    raw[at] = data.draw(st.sampled_from([0, 1, 127, 128, 255, raw[at] ^ 1, raw[at] ^ 8]))
    path.write_bytes(raw[: data.draw(st.sampled_from([len(raw), len(raw), at]))])
    read_or_refuse(path)
