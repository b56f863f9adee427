"""Rounded frequencies against those of torch's dtypes, and the errors of angles against tensors."""

import pytest
import torch

from posenc import frequencies
from posenc.analysis.rounding import ROUNDED, phase_error

NUMBERS = torch.cat(
    (torch.logspace(-50, 50, 999).double(), -torch.rand(999).double(), *[torch.zeros(1)])
)


@pytest.mark.parametrize("dtype", ROUNDED)
def test_numbers_are_rounded_as_torch_rounds_them(dtype):
    torch_dtype = getattr(torch, dtype)
    for number, rounded in zip(NUMBERS.tolist(), NUMBERS.to(torch_dtype).tolist(), strict=True):
        assert ROUNDED[dtype](number) == rounded, number


@pytest.mark.parametrize("dtype", ROUNDED)
def test_phase_errors_are_those_of_tensors(dtype):
    theta = frequencies(128, 500_000.0)
    for position in (1, 4096, 131_072, 10**7 + 1):
        angle = theta.to(getattr(torch, dtype)).float() * float(position)
        expected = (angle.double() - position * theta).abs().max().item()
        assert phase_error(theta.tolist(), position, dtype) == pytest.approx(expected, rel=1e-12)


def test_phase_errors_are_those_of_the_rounded_frequency():
    """1/√10 in bfloat16 is 0.31640625: off by 1.8e-4 a token."""
    theta = [10**-0.5]
    error = phase_error(theta, 1000, "bfloat16")
    assert error == pytest.approx(1000 * abs(0.31640625 - 10**-0.5), rel=1e-3)
    assert phase_error(theta, 1000, "float32") < 1e-4
