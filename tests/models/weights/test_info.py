"""Test header entries, and tensors read from known bytes."""

import json
import os
import struct

import torch
from refusals import refused
from safetensors.torch import save_file
from weight_files import weights

from posenc.models.files.errors import ModelError


def test_dtypes_without_a_torch_tensor_are_listed_and_refused_when_asked_for(tmp_path):
    entry = {"dtype": "F4", "shape": [4], "data_offsets": [0, 2]}
    header = json.dumps({"a": entry}).encode()
    path = tmp_path / "model.safetensors"
    path.write_bytes(struct.pack("<Q", len(header)) + header + bytes(2))
    assert weights(path).infos["a"].dtype == "F4"
    with refused(ModelError, "a", "'F4'"):
        weights(path)["a"]


def test_any_byte_but_0_is_true(tmp_path):
    header = json.dumps({"a": {"dtype": "BOOL", "shape": [3], "data_offsets": [0, 3]}}).encode()
    raw = struct.pack("<Q", len(header)) + header + bytes([0, 2, 255])
    (tmp_path / "model.safetensors").write_bytes(raw)
    assert weights(tmp_path)["a"].tolist() == [False, True, True]


def test_a_file_cut_off_after_its_header_was_read_is_noticed(tmp_path):
    save_file({"a": torch.ones(2)}, tmp_path / "model.safetensors")
    found = weights(tmp_path)
    os.truncate(found.infos["a"].file, found.infos["a"].file.stat().st_size - 1)
    with refused(ModelError, "a"):
        found["a"]
