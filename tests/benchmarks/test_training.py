"""A training step, few samples: all ways must have the same loss."""

import pytest
from refusals import refused

from benchmarks import training

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("few_others")]


def test_a_training_step_has_the_same_loss_whoever_rotates(monkeypatch):
    monkeypatch.setattr(training, "TOKENS", 24)
    table = training.time_training(1, 0.0)
    assert table.row("transformers RoPE, half").ratio > 0
    monkeypatch.setattr(training, "alibi_matrix", lambda q, k, v: v)
    with refused(AssertionError, "ALiBi"):
        training.time_training(1, 0.0)
