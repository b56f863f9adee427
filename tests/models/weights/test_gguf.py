"""Test tensors and key-values of GGUF files against the package gguf, which wrote them."""

import io
import struct

import gguf
import numpy as np
import pytest
import torch
from refusals import refused
from weight_files import save_gguf, weights

from posenc.models.files.errors import ModelError
from posenc.models.weights import gguf as gguf_header


def test_the_types_are_those_of_gguf():
    theirs = {
        int(kind): (kind.name, *gguf.GGML_QUANT_SIZES[kind]) for kind in gguf.GGMLQuantizationType
    }
    assert gguf_header.TYPES == theirs


def test_plain_tensors_of_gguf_are_read_back(tmp_path):
    plain = {
        str(dtype): np.arange(6).reshape(2, 3).astype(dtype)
        for dtype in ("f4", "f2", "f8", "i1", "i2", "i4", "i8")
    }
    save_gguf(tmp_path / "model.gguf", plain)
    found = weights(tmp_path)
    assert list(found.infos["f4"].shape) == [2, 3]
    for name, array in plain.items():
        assert found[name].numpy().dtype == array.dtype
        assert np.array_equal(found[name].numpy(), array)


def test_key_values_of_gguf(tmp_path):
    values = {
        "a__b": ("uint32", 7),
        "small": ("int8", -7),
        "large": ("uint64", 2**63),
        "real": ("float32", 0.5),
        "double": ("float64", 1e-300),
        "yes": ("bool", True),
        "word": ("string", "é"),
        "words": ("array", ["a", "", "é"]),
        "numbers": ("array", [1, 2, 3]),
    }
    save_gguf(tmp_path / "model.gguf", {"a": np.ones(1, np.float32)}, **values)
    expected = {key.replace("__", "."): value for key, (_, value) in values.items()}
    assert weights(tmp_path).metadata == {"general.architecture": "llama", **expected}


def test_vocabularies_are_passed_over(tmp_path, monkeypatch):
    monkeypatch.setattr(gguf_header, "MOST_KEPT", 5)
    arrays = {key: ("array", list("abc")) for key in ("first", "second")}
    arrays |= {"third": ("array", [1.0, 2.0]), "fourth": ("array", [1, 2, 3])}
    save_gguf(tmp_path / "model.gguf", {"a": np.ones(1, np.float32)}, **arrays)
    found = weights(tmp_path)
    assert set(found.metadata) == {"general.architecture", "first", "third"}
    assert found["a"].tolist() == [1]


@pytest.mark.parametrize("kind", ["Q8_0", "Q5_0", "Q4_K", "Q6_K", "IQ4_XS", "MXFP4", "BF16"])
def test_quantised_tensors_are_the_numbers_that_gguf_makes_of_them(tmp_path, kind):
    kind = gguf.GGMLQuantizationType[kind]
    block, size = gguf.GGML_QUANT_SIZES[kind]
    raw = np.random.default_rng(0).integers(0, 256, (2, 512 // block * size), np.uint8)
    save_gguf(tmp_path / "model.gguf", packed={"a": (raw, kind)})
    found = weights(tmp_path)
    with np.errstate(all="ignore"):
        expected = gguf.dequantize(gguf.GGUFReader(tmp_path / "model.gguf").tensors[0].data, kind)
    assert found.infos["a"].dtype == kind.name
    assert found["a"].shape == found.infos["a"].shape == (2, 512)
    assert found["a"].dtype == (torch.bfloat16 if kind.name == "BF16" else torch.float32)
    assert np.array_equal(found["a"].float().numpy(), expected, equal_nan=True)


def test_quantised_tensors_of_no_rows_or_bad_numbers_are_read(tmp_path):
    kind = gguf.GGMLQuantizationType.Q8_0
    packed = {
        "a": (np.zeros((0, 34), np.uint8), kind),
        "b": (np.full((1, 34), 255, np.uint8), kind),
    }
    save_gguf(tmp_path / "model.gguf", packed=packed)
    assert weights(tmp_path)["a"].shape == (0, 32)
    assert weights(tmp_path)["b"].isnan().all()


def test_a_type_that_gguf_cannot_undo_is_refused_when_asked_for(tmp_path):
    kind = gguf.GGMLQuantizationType.Q8_K
    save_gguf(tmp_path / "model.gguf", packed={"a": (np.zeros((1, 292), np.uint8), kind)})
    assert weights(tmp_path).infos["a"].shape == (1, 256)
    with refused(ModelError, "a"):
        weights(tmp_path)["a"]


def test_of_the_first_part_of_a_file_what_lies_in_it_is_read(tmp_path):
    """Packages that distribute a model in parts contain such files."""
    save_gguf(tmp_path / "all.gguf", {"a": np.ones(8, np.float32), "b": np.ones(8, np.float32)})
    raw = (tmp_path / "all.gguf").read_bytes()
    (tmp_path / "model.part00").write_bytes(raw[:-1])
    found = weights(tmp_path / "model.part00")
    assert set(found) == {"a", "b"}
    assert found["a"].tolist() == [1] * 8
    (tmp_path / "model.part00").write_bytes(raw[:-40])
    with pytest.raises(
        ModelError, match=r"model\.part00:b: lies past the end of the file: it needs"
    ):
        found["b"]


def test_split_gguf_is_one_dict(tmp_path):
    save_gguf(tmp_path / "m-00001-of-00002.gguf", {"a": np.ones(2, np.float32)}, n=("uint32", 1))
    save_gguf(tmp_path / "m-00002-of-00002.gguf", {"b": np.ones(3, np.float32)}, n=("uint32", 2))
    found = weights(tmp_path)
    assert set(found) == {"a", "b"}
    assert found.metadata["n"] == 1


def test_what_is_not_installed_is_named(tmp_path, monkeypatch):
    kind = gguf.GGMLQuantizationType.Q8_0
    save_gguf(tmp_path / "model.gguf", packed={"a": (np.zeros((1, 34), np.uint8), kind)})
    monkeypatch.setitem(__import__("sys").modules, "gguf.constants", None)
    with refused(ImportError, "`gguf`"):
        weights(tmp_path)["a"]


def test_strings_that_the_file_is_too_short_for_are_not_looked_for(tmp_path, monkeypatch):
    """The fuzzer found a header of 77 bytes that states 500,000 strings, which was slow."""
    reads = []

    class Counted(io.BufferedReader):
        def read(self, size):
            reads.append(size)
            return super().read(size)

    array = struct.pack("<QcIIQ", 1, b"a", 9, 8, 500_000)
    path = tmp_path / "model.gguf"
    path.write_bytes(struct.pack("<4sIQQ", b"GGUF", 3, 0, 1) + array + bytes(32))
    monkeypatch.setattr(gguf_header, "opened", lambda path: Counted(io.FileIO(path)))
    with pytest.raises(ModelError, match="ends within its header"):
        gguf_header.read_gguf(path)
    assert len(reads) < 20
