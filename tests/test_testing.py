"""`posenc.testing` as a stranger's project has it: a file, a test of it, and pytest begun there."""

import os
import subprocess
import sys

import pytest
import torch
from refusals import refused

from posenc import ALiBi, Encoding
from posenc.testing import conform

MINE = """
import pytest
import torch
from torch import nn
from posenc import Encoding


class Fading(Encoding):
    def __init__(self, heads):
        super().__init__()
        self.heads, self.slope = heads, nn.Parameter(torch.ones(heads))

    def on_scores(self, q, k, q_at, k_at, scale):
        from posenc.core.biases import offset

        apart = offset(q_at, k_at)
        return lambda b, h, i, j: -self.slope[h] * apart(b, h, i, j).abs()


class Canon(Encoding):
    def on_keys(self, k, at):
        return k + k.roll(1, -2)
"""
TEST = """
from mine import Canon, Fading
from posenc.properties import shift_invariant
from posenc.testing import conform


def test_fading():
    conform(Fading, dim=8, heads=2, holds=[shift_invariant])


def test_canon():
    conform(Canon)
"""


@pytest.mark.slow
def test_works_with_pytest_in_a_project_of_its_own(tmp_path):
    (tmp_path / "mine.py").write_text(MINE)
    (tmp_path / "test_mine.py").write_text(TEST)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_mine.py"]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"}
    ran = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert ran.returncode == 1, ran.stderr
    assert "1 failed, 1 passed" in ran.stdout
    assert "AssertionError: Canon breaks the promise `cache`: token by token" in ran.stdout
    # The error is shown at the line of the user's test, and not within the library.
    assert "raise_if_failed" not in ran.stdout


def test_gives_the_outcomes_of_what_breaks_nothing(unchecked):
    assert [one.name for one in conform(ALiBi(4))][:2] == ["paths", "cache"]


def test_asserts_what_is_broken(unchecked):
    class Mixes(Encoding):
        def on_values(self, v, at):
            return v - v.mean(-2, keepdim=True)

    with refused(AssertionError, "`cache`"):
        conform(Mixes, dtypes=[torch.float32])
