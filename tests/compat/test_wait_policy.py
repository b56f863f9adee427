"""The policy that is set, and one that the user has set."""

import os

from posenc.compat.wait_policy import wait_passively


def test_the_policy_is_passive_unless_another_is_set(monkeypatch):
    monkeypatch.setenv("OMP_WAIT_POLICY", "active")
    wait_passively()
    assert os.environ["OMP_WAIT_POLICY"] == "active"
    monkeypatch.delenv("OMP_WAIT_POLICY")
    wait_passively()
    assert os.environ["OMP_WAIT_POLICY"] == "passive"
