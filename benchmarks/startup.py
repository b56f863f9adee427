"""Benchmark of importing posenc and other libraries on top of torch, and of two commands.

Each runs in a new Python process; after the first round all files are in the disk cache.
"""

import subprocess
import sys
from importlib.util import find_spec

from benchmarks.results import BenchTable, Target, table
from benchmarks.timing import timed

LIMIT, OURS = "torch alone", "posenc and attend"
IMPORTS = {  # name: (module that must be installed, code)
    LIMIT: ("torch", "import torch"),
    OURS: ("posenc", "import torch, posenc; posenc.attend"),
    "posenc, every public name": (
        "posenc",
        "import torch, posenc; [getattr(posenc, name) for name in posenc.__all__]",
    ),
    "transformers, Llama": (
        "transformers",
        "import torch, transformers.models.llama.modeling_llama",
    ),
    "rotary-embedding-torch": ("rotary_embedding_torch", "import torch, rotary_embedding_torch"),
    "x-transformers": ("x_transformers", "import torch, x_transformers"),
    "positional-encodings": (
        "positional_encodings",
        "import torch, positional_encodings.torch_encodings",
    ),
    "torchtune": ("torchtune", "import torch, torchtune.modules"),
}
COMMANDS = {"posenc --help": ["--help"], "posenc list": ["list"]}
OWN = ("torch", "posenc")
TARGET_SECONDS = 0.1  # seconds that `import posenc` may take on top of torch


def time_start_up(rounds: int, budget: float, peers: bool = True) -> BenchTable:
    """Time imports and commands; without `peers`, only imports of torch and posenc."""
    modules = {who: module for who, (module, _) in IMPORTS.items() if peers or module in OWN}
    calls = {who: ["-c", IMPORTS[who][1]] for who, module in modules.items() if find_spec(module)}
    calls |= {who: ["-m", "posenc", *words] for who, words in COMMANDS.items()}
    runs = {who: lambda words=words: _run(words) for who, words in calls.items()}
    times = timed(runs, rounds, budget)
    skipped = {who: "not installed" for who in modules if who not in runs}
    result = table("start-up", "a new Python each", LIMIT, times, skipped)
    more = times[OURS].median - times[LIMIT].median
    result.targets.append(Target("posenc and attend, s on top of torch", more, TARGET_SECONDS))
    return result


def _run(words: list[str]) -> None:
    subprocess.run([sys.executable, "-P", *words], check=True, capture_output=True)
