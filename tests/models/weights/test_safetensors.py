"""Test safetensors files against the library that wrote them, and corrupt each field of headers."""

import json
import struct

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from weight_files import FUZZ, read_or_refuse, same, weights

from posenc.models.weights.info import TORCH

DTYPES = [getattr(torch, name) for name in TORCH.values()]


def some(dtype, *shape):
    raw = torch.randint(0, 256, (*shape[:-1], shape[-1] * dtype.itemsize), dtype=torch.uint8)
    return (raw % 2).bool() if dtype == torch.bool else raw.view(dtype)


def test_every_dtype_of_safetensors_is_read_back(tmp_path):
    tensors = {str(dtype): some(dtype, 3, 4) for dtype in DTYPES if dtype != torch.float8_e8m0fnu}
    tensors |= {"no axis": torch.tensor(1.5), "empty": torch.empty(0, 3), "one": torch.ones(1)}
    save_file(tensors, tmp_path / "model.safetensors", {"format": "pt"})
    found = weights(tmp_path)
    assert set(found) == set(tensors) == set(found.infos)
    assert found.metadata == {"format": "pt"}
    assert (found.infos["empty"].shape, found.infos["empty"].dtype) == ((0, 3), "F32")
    for name, tensor in tensors.items():
        same(found[name], tensor)


def test_only_the_tensor_asked_for_is_read(tmp_path, monkeypatch):
    save_file({"a": torch.ones(2), "b": torch.zeros(10**6)}, tmp_path / "model.safetensors")
    found, read = weights(tmp_path), []
    from posenc.models.weights import safetensors

    read_bytes = safetensors.read_bytes
    counted = lambda info, at, size: read.append(size) or read_bytes(info, at, size)  # noqa: E731
    monkeypatch.setattr(safetensors, "read_bytes", counted)
    assert "b" in found
    assert found.get("c") is None
    with pytest.raises(KeyError):
        found["c"]
    assert read == []
    assert found["a"].equal(torch.ones(2))
    assert read == [8]


shapes = st.lists(st.integers(0, 4), max_size=4)


@pytest.mark.slow
@FUZZ
@given(
    tensors=st.dictionaries(
        st.text(min_size=1, max_size=20).filter(lambda name: name != "__metadata__"),
        st.tuples(st.sampled_from(DTYPES[:-6]), shapes),
        max_size=6,
    ),
    metadata=st.none() | st.dictionaries(st.text(), st.text(), max_size=3),
)
def test_whatever_safetensors_writes_is_accepted(tmp_path, tensors, metadata):
    assume(tensors or metadata != {})  # of these, safetensors 0.8 makes what is no JSON
    made = {name: torch.zeros(shape, dtype=dtype) for name, (dtype, shape) in tensors.items()}
    save_file(made, tmp_path / "model.safetensors", metadata)
    found = weights(tmp_path)
    assert set(found) == set(made)
    assert found.metadata == (metadata or {})
    for name in made:
        same(found[name], made[name])


odd = st.sampled_from(
    [None, True, -1, 0, 1, 8, 2**31, 2**53, 2**63, 1e30, "", "F32", "F4", [], [0], [-1, 8], {}]
)


@FUZZ
@given(
    where=st.sampled_from(["a", "b", "__metadata__", "c"]),
    field=st.sampled_from([None, "dtype", "shape", "data_offsets", "more"]),
    at=st.none() | st.integers(0, 2),
    value=odd,
    size=st.integers(0, 40),
)
def test_one_field_changed_is_read_or_refused(tmp_path, where, field, at, value, size):
    header = {
        "__metadata__": {"format": "pt"},
        "a": {"dtype": "F32", "shape": [2, 1], "data_offsets": [0, 8]},
        "b": {"dtype": "F16", "shape": [4], "data_offsets": [8, 16]},
    }
    if field is None:
        header[where] = value
    elif at is None or field == "more" or field not in header.get(where, {}):
        header.setdefault(where, {})[field] = value
    elif isinstance(header[where][field], list):
        header[where][field][at:] = [value]
    raw = json.dumps(header).encode()
    (tmp_path / "model.safetensors").write_bytes(struct.pack("<Q", len(raw)) + raw + bytes(size))
    read_or_refuse(tmp_path)


def test_loading_is_what_safetensors_loads(tmp_path):
    save_file({"a": torch.randn(5, 3), "b": torch.arange(4)}, tmp_path / "model.safetensors")
    theirs = load_file(tmp_path / "model.safetensors")
    found = weights(tmp_path)
    for name, tensor in theirs.items():
        same(found[name], tensor)
