"""`posenc bench`, as a person types it."""

import json
import subprocess
import sys

import pytest
from thorough import some


@pytest.mark.slow
def test_benchmarks_begin_again_with_warm_memory():
    for malloc in some(("warm", "default"), 2):
        words = ["bench", "embeddings", "--quick", "--json", "--malloc", malloc]
        done = subprocess.run(
            [sys.executable, "-m", "posenc", *words], capture_output=True, text=True, timeout=600
        )
        assert done.returncode == 0, done.stderr
        found = json.loads(done.stdout)
        assert found["tables"][0]["malloc"] == malloc
        assert found["provenance"]["command"] == f"posenc {' '.join(words)}"
