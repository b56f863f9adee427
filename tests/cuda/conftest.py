"""Tests that need an NVIDIA GPU; without one, all are skipped.

Run them with `make cuda`. The results of the last run are in `benchmarks/results/README.md`.
"""

from pathlib import Path

import pytest
import torch


def pytest_collection_modifyitems(items):
    if torch.cuda.is_available():
        return
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.skip("there is no NVIDIA GPU"))
