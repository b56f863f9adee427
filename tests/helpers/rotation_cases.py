"""Tensors of all layouts, dtypes and strides for the tests of the rotation, and its definition."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from posenc import frequencies
from posenc.rotation.table import turn

LAYOUTS = ["interleaved", "half"]


DTYPES = [torch.float32, torch.bfloat16, torch.float16]


PAIRS, TOKENS = 16, 7


WIDTHS = {"whole": (None, 32), "first": (0, 40), "last": (8, 40), "middle": (3, 41)}


layouts = pytest.mark.parametrize("layout", LAYOUTS)


dtypes = pytest.mark.parametrize("dtype", DTYPES, ids=str)


widths = pytest.mark.parametrize("width", WIDTHS)


KERNELS = {"interleaved": "complex", "half": "halves"}  # of torch, on the CPU


def contiguous(x):
    return x.contiguous()


def of_a_projection(x):
    return x.transpose(1, 2).contiguous().transpose(1, 2)


def heads(channels, dtype=torch.float32, count=3, tokens=TOKENS):
    return torch.randn(2, count, tokens, channels).to(dtype)


def by(pos=None):
    return turn(torch.arange(TOKENS) * 1001 if pos is None else pos, frequencies(32))


def as_complex(x, turned, layout, start):
    """Rotate x by the definition, in complex float64; `turned` has the cosines and sines."""
    out, first = x.double().clone(), start or 0
    part = out[..., first : first + 2 * PAIRS]
    a, b = (part[..., ::2], part[..., 1::2]) if layout == "interleaved" else part.chunk(2, -1)
    z = torch.complex(a, b) * torch.complex(turned.cos.double(), turned.sin.double())
    made = torch.stack((z.real, z.imag), -1 if layout == "interleaved" else -2).flatten(-2)
    out[..., first : first + 2 * PAIRS] = made
    return out


def ulps(dtype):
    return {torch.float32: 2e-6, torch.bfloat16: 2**-8, torch.float16: 2**-11}[dtype]


def run(code, **environment):
    source = Path(__file__).parents[2] / "src"
    first = environment.pop("PYTHONPATH", os.environ.get("PYTHONPATH", ""))
    path = os.pathsep.join((first, str(source)))
    done = subprocess.run(
        [sys.executable, "-W", "error::UserWarning", "-c", code],
        env={**os.environ, "PYTHONPATH": path, **environment},
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()
