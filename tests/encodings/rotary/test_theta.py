"""Each formula in plain numbers against its form on tensors, which other tests hold to papers."""

import pytest
import torch
from refusals import refused

from posenc.core.frequencies import frequencies
from posenc.encodings.rotary import extension, theta
from posenc.encodings.rotary.p_rope import p_rope

BASE = frequencies(96, 500_000.0)
STRETCHED = {
    "interpolate": (4.0,),
    "ntk": (4.0,),
    "dynamic_ntk": (20_000, 4096, 4.0),
    "by_parts": (8.0, 4096),
    "llama3": (8.0, 8192),
    "yarn": (16.0, 4096),
    "longrope": (9000, 4096, [1.0] * 48, [1.5 + j / 7 for j in range(48)]),
}


def test_frequencies_are_those_of_tensors():
    for dim, base in ((2, 10_000.0), (96, 500_000.0), (128, 1e6), (64, 0.5)):
        plain = torch.tensor(theta.frequencies(dim, base), dtype=torch.float64)
        torch.testing.assert_close(plain, frequencies(dim, base), rtol=4e-16, atol=0)


@pytest.mark.parametrize("method", STRETCHED)
def test_each_extension_is_that_of_tensors(method):
    plain = getattr(theta, method)(BASE.tolist(), *STRETCHED[method])
    tensor = getattr(extension, method)(BASE, *STRETCHED[method])
    torch.testing.assert_close(torch.tensor(plain, dtype=torch.float64), tensor, rtol=1e-15, atol=0)


def test_ramps_of_other_ends_are_those_of_tensors():
    plain = theta.by_parts(BASE.tolist(), 8.0, 4096, 2.0, 2.0)
    assert torch.tensor(plain, dtype=torch.float64).equal(
        extension.by_parts(BASE, 8.0, 4096, 2.0, 2.0)
    )
    for rounded in (True, False):
        plain = theta.yarn(BASE.tolist(), 8.0, 4096, 16.0, 2.0, rounded)
        tensor = extension.yarn(BASE, 8.0, 4096, 16.0, 2.0, rounded)
        plain = torch.tensor(plain, dtype=torch.float64)
        torch.testing.assert_close(plain, tensor, rtol=1e-15, atol=0)


def test_pairs_that_stand_still_and_gains_are_those_of_tensors():
    assert theta.p_rope(BASE.tolist(), 0.7) == p_rope(BASE, 0.7).tolist()
    for factor in (0.5, 1.0, 32.0):
        assert theta.yarn_gain(factor) == extension.yarn_gain(factor)
        assert theta.longrope_gain(factor, 4096) == extension.longrope_gain(factor, 4096)


def test_what_two_pairs_are_needed_for_is_refused_of_one():
    with refused(ValueError, "NTK"):
        theta.ntk([1.0], 2.0)
    with refused(ValueError, "YaRN"):
        theta.yarn([1.0], 2.0, 100)


def test_frequencies_that_would_overflow_are_refused():
    with refused(ValueError, "`factor`", "1e-310"):
        theta.ntk([1.0, 0.1], 1e-310)
    assert theta.frequencies(4, 1e-320)[1] > 1e150
