"""Number of functions that one call of `attend` enters, counted in a new Python.

The numbers are those of Python 3.11 and of a torch whose kernel reads strides.
"""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from posenc.compat import private_torch

TOOL = Path(__file__).parent.parent / "tools/road.py"
MOST = {  # functions of 64 tokens
    "nope": 22,
    "alibi": 45,
    "t5": 60,
    "rope": 62,
}
MOST_FILES = 10  # of NoPE
MOST_OF_ONE_QUERY = 40  # functions, with ALiBi


@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="frames are counted in Python 3.11")
@pytest.mark.skipif(private_torch.VERSION < (2, 9), reason="before torch 2.9 strides are copied")
def test_a_call_enters_few_functions():
    ran = subprocess.run([sys.executable, TOOL], capture_output=True, text=True, check=True)
    found = {}
    for line in ran.stdout.splitlines()[1:]:
        name, numbers = line.split()[0], re.findall(r"\d+", line.split(maxsplit=1)[1])
        found[name] = [int(number) for number in numbers]
    assert found.keys() == MOST.keys()
    for name, most in MOST.items():
        assert found[name][0] <= most, f"python tools/road.py {name}"
    assert found["nope"][1] <= MOST_FILES
    assert found["alibi"][2] <= MOST_OF_ONE_QUERY
