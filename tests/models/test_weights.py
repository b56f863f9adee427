"""Reading tensors, held against the libraries that wrote them: safetensors, onnx and gguf."""

import json
import os
import struct

import gguf
import ml_dtypes
import numpy as np
import onnx
import pytest
import torch
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper
from safetensors.torch import load_file, save_file

from posenc.models.files.errors import ModelError
from posenc.models.files.folder import find_files
from posenc.models.weights import gguf as gguf_header
from posenc.models.weights import onnx as onnx_header
from posenc.models.weights import open_weights
from posenc.models.weights.info import BITS, TORCH

FUZZ = settings(
    max_examples=200,
    derandomize=True,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
DTYPES = [getattr(torch, name) for name in TORCH.values()]


def weights(path):
    return open_weights(find_files(path))


def same(ours, theirs):
    assert ours.dtype == theirs.dtype
    assert ours.shape == theirs.shape
    assert (
        ours.contiguous()
        .view(torch.uint8 if ours.dim() else ours.dtype)
        .equal(theirs.contiguous().view(torch.uint8 if theirs.dim() else theirs.dtype))
    )


def some(dtype, *shape):
    raw = torch.randint(0, 256, (*shape[:-1], shape[-1] * dtype.itemsize), dtype=torch.uint8)
    return (raw % 2).bool() if dtype == torch.bool else raw.view(dtype)


# safetensors


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


def test_dtypes_without_a_torch_tensor_are_listed_and_refused_when_asked_for(tmp_path):
    entry = {"dtype": "F4", "shape": [4], "data_offsets": [0, 2]}
    header = json.dumps({"a": entry}).encode()
    path = tmp_path / "model.safetensors"
    path.write_bytes(struct.pack("<Q", len(header)) + header + bytes(2))
    assert weights(path).infos["a"].dtype == "F4"
    with pytest.raises(ModelError, match="a: is of a dtype that torch lacks, got 'F4'"):
        weights(path)["a"]


def test_any_byte_but_0_is_true(tmp_path):
    header = json.dumps({"a": {"dtype": "BOOL", "shape": [3], "data_offsets": [0, 3]}}).encode()
    raw = struct.pack("<Q", len(header)) + header + bytes([0, 2, 255])
    (tmp_path / "model.safetensors").write_bytes(raw)
    assert weights(tmp_path)["a"].tolist() == [False, True, True]


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
    with pytest.raises(ModelError, match="a: needs 8 GiB of memory, allowed: up to 4 GiB"):
        weights(path)["a"]


def test_a_file_cut_off_after_its_header_was_read_is_noticed(tmp_path):
    save_file({"a": torch.ones(2)}, tmp_path / "model.safetensors")
    found = weights(tmp_path)
    os.truncate(found.infos["a"].file, found.infos["a"].file.stat().st_size - 1)
    with pytest.raises(ModelError, match="a: lies past the end of the file"):
        found["a"]


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
    with pytest.raises(
        ModelError, match="weight_map: names 2 files with 2 tensors, allowed: up to"
    ):
        weights(tmp_path)


def test_the_same_name_in_two_files_is_refused(tmp_path):
    for file in ("a", "b"):
        save_file({"x": torch.ones(1)}, tmp_path / f"{file}.safetensors")
    with pytest.raises(
        ModelError, match=r"b\.safetensors:x: is in a\.safetensors too; give the file"
    ):
        weights(tmp_path)


def test_a_config_has_no_weights(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ModelError, match="no weights are given beside the config"):
        weights(tmp_path)


shapes = st.lists(st.integers(0, 4), max_size=4)


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


def read_or_refuse(path):
    """Return all tensors of a file, or the ModelError that says why not; nothing else."""
    try:
        found = weights(path)
    except ModelError:
        return
    for name in found:
        try:
            assert found[name].shape == found.infos[name].shape
        except ModelError:
            pass


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


@FUZZ
@given(
    kind=st.sampled_from(["safetensors", "gguf", "onnx"]),
    raw=st.binary(max_size=200),
    start=st.sampled_from(
        [b"", b"\x10" + bytes(7), b"GGUF\x03\0\0\0", b"GGUF\x03\0\0\0\x01" + bytes(7)]
    ),
)
def test_random_bytes_are_read_or_refused(tmp_path, kind, raw, start):
    path = tmp_path / f"model.{kind}"
    path.write_bytes(start + raw)
    read_or_refuse(path)


# ONNX

ONNX = [
    dtype
    for dtype in TensorProto.DataType.values()
    if onnx_header.TYPES.get(dtype) in BITS
    and onnx_header.TYPES[dtype] not in ("F4", "F6_E2M3", "F6_E3M2")
]


def save_onnx(path, *tensors, **properties):
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", [], [], tensors)
    model = helper.make_model(graph)
    helper.set_model_props(model, properties)
    path.write_bytes(model.SerializeToString())


def plain(array):
    """numpy's array as torch has it; dtypes of ml_dtypes by their bytes."""
    array = np.ascontiguousarray(array)
    return array.view(f"u{array.dtype.itemsize}") if array.dtype.kind == "V" else array


@pytest.mark.parametrize("raw", [True, False])
@pytest.mark.parametrize("kind", ONNX, ids=onnx_header.TYPES.get)
def test_every_dtype_of_onnx_is_read_back(tmp_path, kind, raw):
    dtype = helper.tensor_dtype_to_np_dtype(kind)
    array = np.array([[1, 0, 1], [1, 1, 2]]).astype(dtype)
    if dtype.kind in "if":
        array[0, 1] = -2
    if raw:
        proto = numpy_helper.from_array(array, "a")
        assert proto.HasField("raw_data")
    else:
        proto = helper.make_tensor("a", kind, array.shape, array.flatten())
        assert not proto.HasField("raw_data")
    save_onnx(tmp_path / "model.onnx", proto, producer="us")
    found = weights(tmp_path)
    assert found.metadata == {"producer": "us"}
    ours = found["a"]
    assert ours.shape == (2, 3)
    assert ours.view(torch.uint8).numpy().tobytes() == numpy_helper.to_array(proto).tobytes()
    assert ours.dtype == getattr(torch, TORCH[found.infos["a"].dtype])


def test_the_numbers_of_dtypes_are_those_of_onnx():
    names = {"FLOAT": "F32", "DOUBLE": "F64", "FLOAT16": "F16", "BFLOAT16": "BF16", "INT64": "I64"}
    theirs = TensorProto.DataType
    assert {onnx_header.TYPES[theirs.Value(name)] for name in names} == set(names.values())
    assert set(onnx_header.TYPES) >= set(theirs.values()) - {0}
    for name, number in theirs.items():
        if name.startswith(("INT", "UINT")):
            letters = "I" if name.startswith("INT") else "U"
            assert onnx_header.TYPES[number] == letters + name.lstrip("UINT")


def test_values_not_packed_are_read_too(tmp_path):
    """Readers of protocol buffers must take both forms; onnx writes packed ones only."""
    proto = TensorProto(name="a", dims=[3], data_type=TensorProto.INT32).SerializeToString()
    proto += b"".join(bytes([5 << 3, number]) for number in (3, 0, 7))
    graph = onnx.GraphProto().SerializeToString() + bytes([5 << 3 | 2, len(proto)]) + proto
    (tmp_path / "model.onnx").write_bytes(bytes([7 << 3 | 2, len(graph)]) + graph)
    assert weights(tmp_path)["a"].tolist() == [3, 0, 7]


def test_other_dtypes_of_onnx_are_listed_and_refused_when_asked_for(tmp_path):
    words = helper.make_tensor("a", TensorProto.STRING, [1], [b"word"])
    fours = numpy_helper.from_array(np.array([1, 2, 3], ml_dtypes.int4), "b")
    save_onnx(tmp_path / "model.onnx", words, fours)
    found = weights(tmp_path)
    assert [info.dtype for info in found.infos.values()] == ["STRING", "I4"]
    for name in found:
        with pytest.raises(ModelError, match=f"{name}: is of a dtype that torch lacks"):
            found[name]


def quantised(scale, zero, name="table"):
    array = np.arange(-12, 12, dtype=np.int8).reshape(4, 6)
    return array, [
        numpy_helper.from_array(array, f"{name}_quantized"),
        numpy_helper.from_array(np.array(scale, np.float32), f"{name}_scale"),
        numpy_helper.from_array(np.array(zero, np.int8), f"{name}_zero_point"),
    ]


def test_quantised_tables_are_offered_under_their_own_name(tmp_path):
    """Against DequantizeLinear of onnx's own reference evaluator."""
    from onnx.reference import ReferenceEvaluator

    across, down = (np.linspace(0.1, 0.6, size).astype(np.float32) for size in (6, 4))
    for scale, zero, axis in [
        (np.float32(0.1), np.int8(-128), 0),
        ([0.3], [127], 0),
        (across, np.arange(6, dtype=np.int8), 1),
        (down, np.arange(4, dtype=np.int8), 0),
    ]:
        array, parts = quantised(scale, zero)
        save_onnx(tmp_path / "model.onnx", *parts)
        found = weights(tmp_path)
        assert (found.infos["table"].dtype, found.infos["table"].shape) == ("F32", (4, 6))
        node = helper.make_node("DequantizeLinear", ["x", "s", "z"], ["y"], axis=axis)
        given = {"x": array, "s": np.array(scale, np.float32), "z": np.array(zero, np.int8)}
        if given["s"].shape == (1,):
            given |= {"s": given["s"][0], "z": given["z"][0]}
        (expected,) = ReferenceEvaluator(node).run(None, given)
        assert found["table"].dtype == torch.float32
        assert np.array_equal(found["table"].numpy(), expected)


def test_what_cannot_be_told_is_not_dequantised(tmp_path):
    _, parts = quantised([0.1, 0.2, 0.3], [0, 0, 0])  # no axis of 3
    save_onnx(tmp_path / "model.onnx", *parts)
    assert "table" not in weights(tmp_path)
    _, parts = quantised(0.1, 0)
    save_onnx(tmp_path / "model.onnx", *parts[:2])
    assert set(weights(tmp_path)) == {"table_quantized", "table_scale"}
    save_onnx(tmp_path / "model.onnx", *parts, numpy_helper.from_array(np.ones(2), "table"))
    assert weights(tmp_path)["table"].shape == (2,)


def elsewhere(folder, location, **more):
    proto = TensorProto(name="a", dims=[2], data_type=TensorProto.FLOAT)
    proto.data_location = TensorProto.EXTERNAL
    for key, value in {"location": location, **more}.items():
        proto.external_data.add(key=key, value=str(value))
    save_onnx(folder / "model.onnx", proto)
    return weights(folder)


def test_tensors_in_another_file_of_the_folder_are_read(tmp_path):
    (tmp_path / "data").write_bytes(np.array([9, 1.5, 2.5, 9], np.float32).tobytes())
    assert elsewhere(tmp_path, "data", offset=4, length=8)["a"].tolist() == [1.5, 2.5]
    assert elsewhere(tmp_path, "data", checksum="x")["a"].tolist() == [9, 1.5]


@pytest.mark.parametrize(
    ("location", "more", "message"),
    [
        ("../data", {}, "model.onnx:a: names a file outside of the folder, got '../data'"),
        ("/etc/passwd", {}, "model.onnx:a: names a file outside of the folder"),
        ("", {}, "model.onnx:a: names a file outside of the folder"),
        ("missing", {}, "missing: cannot be read"),
        ("data", {"offset": 12}, "data:a: lies past the end of the file"),
        ("data", {"offset": "-4"}, "model.onnx:a: has an offset and length that do not fit"),
        ("data", {"offset": "9" * 5000}, "has an offset and length that do not fit"),
        ("data", {"length": 12}, r"got \['0', '12'\], allowed: length 8"),
        ("link", {}, "model.onnx:a: links to a file outside of the folder"),
    ],
)
def test_tensors_in_other_places_are_refused(tmp_path, location, more, message):
    (tmp_path / "model").mkdir()
    (tmp_path / "data").write_bytes(bytes(16))
    (tmp_path / "model" / "data").write_bytes(bytes(16))
    (tmp_path / "model" / "link").symlink_to("../data")
    found = elsewhere(tmp_path / "model", location, **more)
    with pytest.raises(ModelError, match=message):
        found["a"]


# GGUF


def save_gguf(path, plain=(), packed=(), **values):
    writer = gguf.GGUFWriter(path, "llama")
    for key, (add, value) in values.items():
        getattr(writer, f"add_{add}")(key.replace("__", "."), value)
    for name, array in dict(plain).items():
        writer.add_tensor(name, array)
    for name, (array, kind) in dict(packed).items():
        writer.add_tensor(name, array, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


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
    with pytest.raises(ModelError, match="a: is of a dtype that gguf does not turn into numbers"):
        weights(tmp_path)["a"]


def test_of_the_first_part_of_a_file_what_lies_in_it_is_read(tmp_path):
    """Packages that ship a model in parts hold such files."""
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
    with pytest.raises(ImportError, match=r"need `gguf`: python -m pip install 'posenc\[models\]'"):
        weights(tmp_path)["a"]


@FUZZ
@given(kind=st.sampled_from(["gguf", "onnx"]), data=st.data())
def test_one_byte_changed_is_read_or_refused(tmp_path, kind, data):
    path = tmp_path / f"model.{kind}"
    if kind == "gguf":
        rows = np.zeros((2, 34), np.uint8), gguf.GGMLQuantizationType.Q8_0
        save_gguf(path, {"a": np.ones((2, 3), np.float32)}, {"b": rows}, n=("array", ["x", "y"]))
    else:
        one = numpy_helper.from_array(np.ones((2, 3), np.float32), "a")
        two = helper.make_tensor("b", TensorProto.INT32, [3], [1, -2, 300])
        save_onnx(path, one, two, *quantised(0.1, 3)[1], n="x")
    raw = bytearray(path.read_bytes())
    at = data.draw(st.integers(0, len(raw) - 1))
    raw[at] = data.draw(st.sampled_from([0, 1, 127, 128, 255, raw[at] ^ 1, raw[at] ^ 8]))
    path.write_bytes(raw[: data.draw(st.sampled_from([len(raw), len(raw), at]))])
    read_or_refuse(path)


def test_loading_is_what_safetensors_loads(tmp_path):
    save_file({"a": torch.randn(5, 3), "b": torch.arange(4)}, tmp_path / "model.safetensors")
    theirs = load_file(tmp_path / "model.safetensors")
    found = weights(tmp_path)
    for name, tensor in theirs.items():
        same(found[name], tensor)
