"""Set the wait policy of OpenMP, which is read once, when torch is imported."""

import os

POLICY = "OMP_WAIT_POLICY"


def wait_passively() -> None:
    """Make OpenMP threads sleep while they wait, unless the user has set another policy.

    Call this function before torch is imported. Spinning threads occupy cores that other processes
    need; beside two busy processes a backward pass took 17 times as long.
    """
    os.environ.setdefault(POLICY, "passive")
