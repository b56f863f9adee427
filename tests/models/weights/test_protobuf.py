"""A walk through a protocol buffer, held against the bytes that google.protobuf writes."""

import onnx
from onnx import TensorProto
from weight_files import weights


def test_values_not_packed_are_read_too(tmp_path):
    """Readers of protocol buffers must take both forms; onnx writes packed ones only."""
    proto = TensorProto(name="a", dims=[3], data_type=TensorProto.INT32).SerializeToString()
    proto += b"".join(bytes([5 << 3, number]) for number in (3, 0, 7))
    graph = onnx.GraphProto().SerializeToString() + bytes([5 << 3 | 2, len(proto)]) + proto
    (tmp_path / "model.onnx").write_bytes(bytes([7 << 3 | 2, len(graph)]) + graph)
    assert weights(tmp_path)["a"].tolist() == [3, 0, 7]
