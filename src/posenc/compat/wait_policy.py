"""The wait policy of OpenMP, which is read once, when torch is imported."""

import os

POLICY = "OMP_WAIT_POLICY"


def wait_passively() -> None:
    """Let threads of OpenMP sleep while they wait, unless the user has set another policy.

    Call it before torch is imported. Threads that spin hold a core that another process needs:
    beside two busy processes a backward pass took 17 times as long.
    """
    os.environ.setdefault(POLICY, "passive")
