"""The fuzzer of the readers, with a stand-in for atheris, which only the extra `fuzz` brings: what
is imported before it instruments, it does not see, and then it is led by nothing."""

import subprocess
import sys
from pathlib import Path

import pytest

READERS = Path(__file__).parent / "readers.py"
STAND_IN = """
import contextlib, os, pathlib, sys

@contextlib.contextmanager
def instrument_imports(**options):
    known = [name for name in sys.modules if name.startswith("posenc.models")]
    assert not known, known
    yield

def Setup(arguments, read):
    global read_one, corpus
    read_one, corpus = read, pathlib.Path(arguments[-1])

def Fuzz():
    read_one(min(corpus.iterdir()).read_bytes())
    for unit in range(UNITS):
        (corpus / f"new-{unit}").write_bytes(b"0")
    os._exit(0)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("units", "code", "said"),
    [(3, 0, "3 new units"), (0, 1, "error: the fuzzer found no new units: it sees no coverage")],
)
def test_nothing_is_imported_before_it_is_instrumented_and_no_new_units_are_a_failure(
    tmp_path, units, code, said
):
    (tmp_path / "atheris.py").write_text(f"UNITS = {units}\n{STAND_IN}")
    run = f"import runpy, sys; sys.path.insert(0, {str(tmp_path)!r}); sys.argv = ['readers.py']\n"
    run += f"runpy.run_path({str(READERS)!r}, run_name='__main__')"
    done = subprocess.run([sys.executable, "-c", run], capture_output=True, text=True)
    assert said in done.stdout + done.stderr
    assert done.returncode == code
