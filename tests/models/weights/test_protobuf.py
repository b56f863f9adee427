"""A walk through a protocol buffer, held against the bytes that google.protobuf writes."""

import onnx
import pytest
from onnx import TensorProto
from weight_files import weights

from posenc.models.files.errors import ModelError
from posenc.models.weights.protobuf import Field, Walk


def test_values_not_packed_are_read_too(tmp_path):
    """Readers of protocol buffers must take both forms; onnx writes packed ones only."""
    proto = TensorProto(name="a", dims=[3], data_type=TensorProto.INT32).SerializeToString()
    proto += b"".join(bytes([5 << 3, number]) for number in (3, 0, 7))
    graph = onnx.GraphProto().SerializeToString() + bytes([5 << 3 | 2, len(proto)]) + proto
    (tmp_path / "model.onnx").write_bytes(bytes([7 << 3 | 2, len(graph)]) + graph)
    assert weights(tmp_path)["a"].tolist() == [3, 0, 7]


def walk(path, raw):
    path.write_bytes(raw)
    return Walk(path, path.open("rb"))


@pytest.mark.parametrize("numbers", [[0], [1, 127, 128, 300], [2**31 - 1, 2**63 - 1], [-1, -300]])
def test_numbers_are_read_packed_into_one_field_or_one_by_one(tmp_path, numbers):
    """onnx packs the values of a tensor, and not its sizes."""
    expected = [number % 2**64 for number in numbers]
    for proto, fields in (
        (TensorProto(int64_data=numbers), 1),
        (TensorProto(dims=numbers), len(numbers)),
    ):
        raw = proto.SerializeToString()
        with (found := walk(tmp_path / "a", raw)).file:
            each = [found.numbers(field) for field in found.fields(0, len(raw))]
        assert len(each) == fields
        assert [number for some in each for number in some] == expected


def test_a_pair_is_its_key_and_value(tmp_path):
    entry = onnx.StringStringEntryProto(key="né", value="a b")
    with (found := walk(tmp_path / "a", entry.SerializeToString())).file:
        assert found.pair(Field(1, None, 0, entry.ByteSize())) == ("né", "a b")


def test_fields_of_every_wire_type_are_passed_over(tmp_path):
    """Varints, 8 and 4 bytes, and lengths: the last field is read whatever stands before it."""
    proto = TensorProto(data_type=1, name="a", raw_data=b"xyz").SerializeToString()
    raw = b"\x49" + bytes(8) + b"\x55" + bytes(4) + proto  # fields 9 and 10
    with (found := walk(tmp_path / "a", raw)).file:
        fields = list(found.fields(0, len(raw)))
        assert [field.number for field in fields] == [9, 10, 2, 8, 9]
        assert (fields[2].value, fields[0].size, fields[1].size) == (1, 8, 4)
        assert [found.raw(field) for field in fields[3:]] == [b"a", b"xyz"]


def test_a_walk_of_too_many_steps_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("posenc.models.weights.protobuf.MOST_FIELDS", 3)
    with (found := walk(tmp_path / "a", b"\x08\x01" * 4)).file:
        with pytest.raises(ModelError, match="a: has too many parts, allowed: 3"):
            list(found.fields(0, 8))
