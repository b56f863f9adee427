"""Weights files for tests, written by the libraries of their formats, and readers for them."""

import gguf
import torch
from hypothesis import HealthCheck, settings

from posenc.models.files.errors import ModelError
from posenc.models.files.folder import find_files
from posenc.models.weights import open_weights
from posenc.show.report.kinds.inspection.weights import sections

FUZZ = settings(
    max_examples=200,
    derandomize=True,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


def sentences(measurements):
    """Return all sentences about measured weights; that of one tensor has its name as prefix."""
    return [
        f"{heading}: {line}" if place.startswith(("table-", "bias-")) else line
        for place, (heading, *lines) in sections(measurements).items()
        for line in lines
    ]


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


def read_or_refuse(path):
    """Read all tensors of a file; a ModelError is accepted, and any other error is raised."""
    try:
        found = weights(path)
    except ModelError:
        return
    for name in found:
        try:
            assert found[name].shape == found.infos[name].shape
        except ModelError:
            pass


def save_gguf(path, plain=(), packed=(), **values):
    _, architecture = values.pop("general__architecture", ("string", "llama"))
    writer = gguf.GGUFWriter(path, architecture)
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
