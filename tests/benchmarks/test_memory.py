"""Peak memory of calls whose size is known."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from refusals import refused

from benchmarks import memory

pytestmark = pytest.mark.slow

needs_linux = pytest.mark.skipif(not memory.STATUS.exists(), reason="reads /proc of Linux")


@needs_linux
@pytest.mark.parametrize("mb", [64, 128])  # malloc always allocates these anew
def test_the_peak_is_what_is_made_and_not_what_was_there(mb):
    there = torch.ones(mb, 2**18)  # `mb` MB

    def twice_then_once():
        both = there + 1, there + 2
        return both[0]

    assert memory.peak(twice_then_once) == pytest.approx(2 * mb, rel=0.1, abs=2)


@needs_linux
def test_freed_memory_that_the_heap_holds_counts_again():
    """In a process whose heap never shrinks by itself, so that a freed block stays resident."""
    code = """import torch
from benchmarks import memory
print([memory.peak(lambda: torch.ones(16, 2**18)) for _ in range(3)])"""
    keeps = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(2**30)}
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=Path(__file__).parents[2],
        env=os.environ | keeps,
        stdout=subprocess.PIPE,
        check=True,
    )
    assert json.loads(done.stdout) == pytest.approx([16] * 3, rel=0.1, abs=2)


@needs_linux
def test_peaks_come_from_a_process_of_their_own():
    found = memory.peaks("embeddings")
    result = 8 * 2048 * 512 * 4 / 2**20
    assert found["a copy"] == pytest.approx(result, rel=0.1)
    assert found["posenc, rows made once a forward"] == pytest.approx(result, rel=0.1)
    assert found["posenc, rows made anew"] < 2.5 * result


@needs_linux
def test_what_goes_wrong_there_is_told_here():
    with refused(RuntimeError, "KeyError", "'nowhere'"):
        memory.peaks("rotation", "nowhere", "float32")
