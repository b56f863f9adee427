"""The public names, in a fresh Python that has imported every part of the library before."""

import subprocess
import sys

import pytest

import posenc

ASK = """
import importlib.util, pkgutil, types
import posenc
for found in pkgutil.walk_packages(posenc.__path__, "posenc."):
    # not everybody has Triton, Numba and Ray
    if not found.name.endswith(("_kernel", "on_ray", "__main__")):
        importlib.import_module(found.name)
print(*(name for name in posenc.__all__ if isinstance(getattr(posenc, name), types.ModuleType)))
"""


@pytest.mark.slow
def test_no_function_is_hidden_by_a_module_of_its_name():
    asked = subprocess.run([sys.executable, "-c", ASK], capture_output=True, text=True, check=True)
    assert asked.stdout.split() == ["masks", "positions", "properties", "study"]


def test_every_public_name_can_be_imported():
    assert all(hasattr(posenc, name) for name in posenc.__all__)
