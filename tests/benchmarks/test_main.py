"""`python -m benchmarks`, as a person types it."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from thorough import some

from benchmarks import __main__

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_benchmarks_begin_again_with_warm_memory():
    for malloc in some(("warm", "default"), 2):
        words = ["embeddings", "--quick", "--json", "--malloc", malloc]
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks", *words],
            capture_output=True, text=True, timeout=600, cwd=ROOT,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        found = json.loads(done.stdout)
        assert found["tables"][0]["malloc"] == malloc
        assert found["provenance"]["command"] == f"python -m benchmarks {' '.join(words)}"


@pytest.fixture
def made(monkeypatch, benchmarked):
    """A run that measures nothing."""
    found = replace(benchmarked, unmeasured=("start-up",))
    monkeypatch.setattr("benchmarks.run.benchmark", lambda *words: found)
    return found


def test_an_interrupted_benchmark_shows_what_it_has_and_ends_as_interrupted(made, capsys):
    assert __main__.main(["rotation", "--json", "--malloc", "default"]) == 130
    assert json.loads(capsys.readouterr().out)["unmeasured"] == ["start-up"]


def test_results_go_to_a_new_folder_and_nothing_is_overwritten(made, tmp_path, capsys):
    words = ["--malloc", "default", "--out", str(tmp_path / "new")]
    assert __main__.main(words) == 130
    assert json.loads((tmp_path / "new/results.json").read_text()) == json.loads(
        json.dumps(made.to_json())
    )
    with pytest.raises(FileExistsError):
        __main__.main(words)


def test_an_unknown_part_is_answered_with_the_known_ones(capsys):
    with pytest.raises(SystemExit) as ended:
        __main__.main(["rotating", "--malloc", "default"])
    assert ended.value.code == 2
    assert "`parts` must be of rotation" in capsys.readouterr().err
