"""Fixtures of the tests of the rotation."""

import pytest
from rotation_cases import PAIRS

from posenc.rotation import torch_kernels


@pytest.fixture(params=["few", "many"])
def amount(request, monkeypatch):
    """Make these small tensors count as few numbers, or as many blocks."""
    if request.param == "many":
        monkeypatch.setattr("posenc.rotation.kernels.FEW_NUMBERS", 0)
        monkeypatch.setattr(torch_kernels, "BLOCK", 3 * 2 * PAIRS)
    return request.param
