"""Initialisers of ONNX, held against onnx, which wrote them, and its reference evaluator."""

import ml_dtypes
import numpy as np
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from weight_files import quantised, save_onnx, weights

from posenc.models.files.errors import ModelError
from posenc.models.weights import onnx as onnx_header
from posenc.models.weights.info import BITS, TORCH

ONNX = [
    dtype
    for dtype in TensorProto.DataType.values()
    if onnx_header.TYPES.get(dtype) in BITS
    and onnx_header.TYPES[dtype] not in ("F4", "F6_E2M3", "F6_E3M2")
]


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


def test_other_dtypes_of_onnx_are_listed_and_refused_when_asked_for(tmp_path):
    words = helper.make_tensor("a", TensorProto.STRING, [1], [b"word"])
    fours = numpy_helper.from_array(np.array([1, 2, 3], ml_dtypes.int4), "b")
    save_onnx(tmp_path / "model.onnx", words, fours)
    found = weights(tmp_path)
    assert [info.dtype for info in found.infos.values()] == ["STRING", "I4"]
    for name in found:
        with pytest.raises(ModelError, match=f"{name}: is of a dtype that torch lacks"):
            found[name]


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
