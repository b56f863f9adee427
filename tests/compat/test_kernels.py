"""Numba, as it is loaded: checked, said once where it fails, and not by a forked process."""

import pytest
from rotation_cases import run


@pytest.mark.slow
def test_numba_that_does_not_work_is_done_without(tmp_path):
    (tmp_path / "numba.py").write_text("")  # something of that name
    code = """
import warnings
from posenc.rotation import kernels
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    print(kernels.load_numba(), kernels.load_numba(), len(said))
    print("does not use Numba" in str(said[0].message))
"""
    assert run(code, PYTHONPATH=str(tmp_path)) == ["None", "None", "1", "True"]


def test_kernels_serve_unless_the_process_is_forked():
    """In a Python of its own: in this one all tests go without kernels."""
    code = """
import os, sys, types
made = types.ModuleType("made")
made.self_test = lambda: None
sys.modules["made"] = made
from posenc.compat import kernels
print(kernels.load("made") is made)
child = os.fork()
if child == 0:
    os._exit(0 if kernels.load("made") is None else 1)
print(os.waitpid(child, 0)[1], kernels.load("made") is made)
"""
    pytest.importorskip("numba")
    assert run(code) == ["True", "0", "True"]
