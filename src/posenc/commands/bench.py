"""`posenc bench`: posenc beside its peers, in one run."""

import os
import shlex
import sys
from typing import Literal

from posenc.commands.app import MEASURE, command
from posenc.commands.errors import UsageError
from posenc.commands.options import NOWHERE, Flag, Output
from posenc.commands.progress import progress
from posenc.core.provenance import command_line


@command(
    MEASURE,
    place=5,
    takes="[PARTS...]",
    examples=(
        ("posenc bench embeddings --quick", "one part, a few cases"),
        ("posenc bench --out bench/", "everything: half an hour"),
    ),
)
def bench(
    *parts: str,
    quick: Flag = False,
    malloc: Literal["warm", "default"] = "warm",
    output: Output = NOWHERE,
) -> None:
    """Measure posenc beside other libraries in one run, as ratios to the limit.

    Interrupted, it shows what it has measured.

    Parameters
    ----------
    parts
        rotation, embeddings, attention, serving (one query on keys that heads share, a cache,
        packed documents, a small prefill), training, study (a step of `posenc study` with every
        encoding), adapter (in a model of transformers), start-up, fast (by Numba); all of these,
        unless you name some; and growth (a layer with each encoding, up to 65,536 tokens).
    quick
        Fewer cases and samples: three minutes instead of half an hour.
    malloc
        "warm" keeps the memory of freed tensors, as allocators of GPUs do. With "default" the
        system hands out large tensors anew and clears them, which is most of the time of a copy.
    """
    from posenc.lab.bench.timing import WARM

    if malloc == "warm" and any(os.environ.get(key) != value for key, value in WARM.items()):
        # The allocator reads these when a process starts, so begin again
        os.environ |= WARM
        os.execv(
            sys.executable,
            [sys.executable, "-P", "-m", "posenc", *shlex.split(command_line.get())[1:]],
        )
    output.prepare()
    from posenc.lab.bench import run

    try:
        with progress() as say:
            benchmarked = run.benchmark(parts, quick, say)
            output.write(benchmarked, say)
    except LookupError as error:
        raise UsageError(error.args[0]) from None
    output.show(benchmarked)
    if benchmarked.unmeasured:
        raise KeyboardInterrupt
