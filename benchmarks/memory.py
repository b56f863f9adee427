"""Measurement of the peak memory of calls, in a process that returns freed memory at once.

    peak = greatest resident memory during the call − resident memory before

Results are included and inputs are not. On systems other than Linux nothing is measured.
"""

import ctypes
import gc
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from benchmarks.timing import WARM

STATUS = Path("/proc/self/status")
FREE_AT_ONCE = {
    "MALLOC_MMAP_THRESHOLD_": "65536",
    "MALLOC_TRIM_THRESHOLD_": "65536",
    "MALLOC_TOP_PAD_": "0",
}


def peaks(part: str, *words: str) -> dict[str, float]:
    """Run the `peaks` function of a benchmark in another process; return MB by implementation."""
    if not STATUS.exists():
        return {}
    code = f"import json; from benchmarks.{part} import peaks; print(json.dumps(peaks(*{words!r})))"
    environment = {k: v for k, v in os.environ.items() if k not in WARM} | FREE_AT_ONCE
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=Path(__file__).parents[1],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"memory of {part} {words}: {done.stderr.strip().splitlines()[-1]}")
    return json.loads(done.stdout.splitlines()[-1])


def peak(run: Callable[[], object]) -> float:
    """Measure the peak of one call in this process in MB. Call `run` before, to load libraries."""
    # Garbage collected during the call would count as memory returned by the call
    gc.collect()
    # The call could reuse freed memory of the heap, which would not be counted
    if hasattr(libc := ctypes.CDLL(None), "malloc_trim"):
        libc.malloc_trim(0)
    # Reset the peak recorded by the kernel
    Path("/proc/self/clear_refs").write_text("5")
    before = _resident("VmRSS")
    run()
    # Linux counts pages in batches, so a call without new pages can seem to return some
    return max(0.0, _resident("VmHWM") - before)


def _resident(key: str) -> float:
    lines = STATUS.read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(key))
