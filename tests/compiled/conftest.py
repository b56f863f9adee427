"""What torch says of itself while it compiles is not ours to mend; seeds as in all tests."""

import os
import shutil

import pytest
import torch

COMPILER = "CXX" in os.environ or any(map(shutil.which, ("g++", "c++", "clang++")))


def pytest_configure(config):
    config.addinivalue_line("markers", "compiler: runs what torch compiles, with a C++ compiler")


def pytest_collection_modifyitems(items):
    for item in items:  # its parts are deprecated by torch itself
        item.add_marker(pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning"))
        if item.get_closest_marker("compiler") and not COMPILER:
            item.add_marker(pytest.mark.skip("torch needs a C++ compiler here, and there is none"))


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)
