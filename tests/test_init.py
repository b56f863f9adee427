"""The public names, in a fresh Python that has imported every part of the library before."""

import subprocess
import sys

import pytest

import posenc
from posenc.core.encoding import HOOKS, Encoding

ASK = """
import importlib.util, pkgutil, types
import posenc
for found in pkgutil.walk_packages(posenc.__path__, "posenc."):
    # not everybody has Triton and Numba
    if not found.name.endswith(("_kernel", "__main__")):
        importlib.import_module(found.name)
print(*(name for name in posenc.__all__ if isinstance(getattr(posenc, name), types.ModuleType)))
"""


@pytest.mark.slow
def test_no_function_is_hidden_by_a_module_of_its_name():
    asked = subprocess.run([sys.executable, "-c", ASK], capture_output=True, text=True, check=True)
    assert asked.stdout.split() == ["masks", "positions", "properties", "study"]


def test_every_public_name_can_be_imported():
    assert all(hasattr(posenc, name) for name in posenc.__all__)


@pytest.mark.parametrize("card", posenc.CATALOG, ids=lambda card: card.slug)
def test_the_name_on_a_card_can_be_imported_and_makes_that_encoding(card):
    """Without spaces and dashes, words capitalised: Axial RoPE 3-D is AxialRoPE3D."""
    words = card.name.replace("-", " ").split()
    name = "".join(word[0].upper() + word[1:] for word in words)
    make, made = getattr(posenc, name), posenc.create(card.slug, dim=16, heads=4)
    assert name in dir(posenc)
    if isinstance(make, type):
        assert type(made) is make
    else:  # a function that returns RoPE with frequencies of its own
        again = make(16)
        assert type(again) is type(made)
        assert again.freqs.equal(made.freqs)
        assert again.layout == made.layout


def test_dir_lists_public_names_only():
    assert {*dir(posenc)} == {*posenc.__all__, "plot", "__version__"}
    assert not [name for name in dir(posenc) if name.startswith("_") and name != "__version__"]
    for leaked in ("Any", "TYPE_CHECKING", "find_spec", "import_module"):
        assert leaked not in dir(posenc)


def test_the_base_class_teaches_its_hooks():
    for hook in HOOKS:
        assert f"{hook}(" in Encoding.__doc__
