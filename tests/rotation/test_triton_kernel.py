"""The kernel of CUDA against the formula, in Triton's interpreter: see in_triton.py."""

import importlib.util
from pathlib import Path

import pytest
import torch
from rotation_cases import run

# Triton, in its interpreter: another process, as it must be chosen before it is imported


TRITON = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="Triton is not installed"
)


@pytest.mark.slow
@TRITON
def test_the_kernel_of_cuda_equals_the_formula():
    code = Path(__file__).with_name("in_triton.py").read_text()
    assert run(code, TRITON_INTERPRET="1") == ["turned", "24"]


@TRITON
@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU, where the kernel works")
def test_says_once_that_triton_does_not_work():
    code = """
import warnings
from posenc.rotation.triton_kernel import usable
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    print(usable(), usable(), len(said), "plain tensor operations" in str(said[0].message))
"""
    assert run(code) == ["False", "False", "1", "True"]
