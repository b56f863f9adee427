"""Student's t against mpmath's incomplete beta function."""

import mpmath
import pytest

from posenc.analysis import student


@pytest.mark.parametrize("degrees", [1, 2, 2.5, 5, 9, 40, 1000])
def test_t_is_that_of_the_incomplete_beta_function(degrees):
    for share in (0.9, 0.95, 0.975, 0.995):
        t = student.t_quantile(share, degrees)
        tail = mpmath.betainc(degrees / 2, 0.5, 0, degrees / (degrees + t * t), regularized=True)
        assert 1 - tail / 2 == pytest.approx(share, abs=2e-5)
        assert student.t_below(t, degrees) == pytest.approx(share, abs=1e-6)
