"""Files of weights for tests, written by the libraries of their formats, and readers of them."""

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
    """All that is said of measured weights, behind its name what is said of one tensor."""
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
    """Return all tensors of a file, or the ModelError of reading it; other errors are raised."""
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
