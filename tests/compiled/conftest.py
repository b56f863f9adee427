"""Fixtures of compiled tests: warnings of torch while it compiles are ignored; fixed seeds.

By hand: `python -m pytest -o addopts=--import-mode=importlib tests/compiled`.
"""

import os
import shutil
from pathlib import Path

import pytest
import torch
import torch._dynamo

from posenc.compat import private_torch

# torch writes down what it finds of each operation's shapes, to look it up another time. Here all
# that is traced is small and new: the notes take a third of the time, and little is looked up.
torch._dynamo.config.fake_tensor_cache_enabled = False

COMPILER = "CXX" in os.environ or any(map(shutil.which, ("g++", "c++", "clang++")))
CHECKED = (
    "the shape checker stands in the way of tracing: `make slow` runs this without, or pass"
    " `-o addopts=--import-mode=importlib`"
)


def pytest_configure(config):
    config.addinivalue_line("markers", "compiler: runs what torch compiles, with a C++ compiler")


def pytest_collection_modifyitems(config, items):
    checked = config.getoption("jaxtyping_packages", None)
    old = pytest.mark.skip("one graph of `attend`, and its export, take torch 2.13")
    for item in items:
        if Path(__file__).parent not in item.path.parents:
            continue
        if private_torch.VERSION < (2, 13):
            item.add_marker(old)
        if checked:
            item.add_marker(pytest.mark.skip(CHECKED))
        # its parts are deprecated by torch itself
        item.add_marker(pytest.mark.filterwarnings("ignore:`torch.jit"))
        if item.get_closest_marker("compiler") and not COMPILER:
            item.add_marker(pytest.mark.skip("torch needs a C++ compiler here, and there is none"))


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)
