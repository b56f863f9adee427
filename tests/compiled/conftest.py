"""What torch says of itself while it compiles is not ours to mend; seeds as in all tests."""

import pytest
import torch


def pytest_collection_modifyitems(items):
    for item in items:  # its parts are deprecated by torch itself
        item.add_marker(pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning"))


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)
