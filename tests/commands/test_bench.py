"""`posenc bench`, as a person types it."""

import json
import subprocess
import sys
from dataclasses import replace

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


def test_an_interrupted_benchmark_shows_what_it_has_and_ends_as_interrupted(
    posenc, monkeypatch, benchmarked
):
    found = replace(benchmarked, unmeasured=("start-up",))
    monkeypatch.setattr("posenc.lab.bench.run.benchmark", lambda *words: found)
    code, out, err = posenc("bench", "rotation", "--json", "--malloc", "default")
    assert (code, "interrupted" in err) == (130, True)
    assert json.loads(out)["unmeasured"] == ["start-up"]
