"""The tool that times the explorer, run on one encoding: it must find what the page calls today."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

TOOL = Path(__file__).parent.parent / "tools/explorer_speed.py"


@pytest.mark.slow
def test_the_explorer_is_timed():
    done = subprocess.run([sys.executable, TOOL, "--quick", "rope"], capture_output=True, text=True)
    assert not done.returncode, done.stderr
    found = json.loads(done.stdout)
    assert found["requests"] == 1
    for what in ("step at 128, ms", "scores at 256, ms"):
        assert 0 < found[what]["rope"]["least"] <= found[what]["rope"]["median"]
