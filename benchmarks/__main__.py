"""`python -m benchmarks`: posenc beside its peers, in one run, from the root of the repository."""

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.timing import WARM
from posenc.support.provenance import command_line


def main(words: Sequence[str]) -> int:
    """Measure, print tables, and return the exit status; an interrupted run prints what it has."""
    options = argparse.ArgumentParser(
        "python -m benchmarks", description="Measure posenc beside other libraries, as ratios."
    )
    options.add_argument("parts", nargs="*", help="see benchmarks/README.md; default: most")
    options.add_argument("--quick", action="store_true", help="fewer cases: three minutes")
    options.add_argument("--out", type=Path, help="a new folder for results.json")
    options.add_argument("--json", action="store_true", help="print one JSON document")
    options.add_argument(
        "--malloc", choices=("warm", "default"), default="warm",
        help="keep the memory of freed tensors, as GPUs do, or use the system's allocation",
    )  # fmt: skip
    options.add_argument("--tokens", nargs="+", type=int, default=[], help="lengths of `busy`")
    options.add_argument("--kinds", nargs="+", default=[], help="of `busy`: forward, training")
    options.add_argument("--conditions", nargs="+", default=[], help="of `busy`: quiet, busy")
    options.add_argument("--only", nargs="+", default=[], help="encodings of `busy`")
    asked = options.parse_args(words)
    if asked.malloc == "warm" and any(os.environ.get(key) != value for key, value in WARM.items()):
        # The allocator reads these when a process starts, so begin again
        os.environ |= WARM
        os.execv(sys.executable, [sys.executable, "-m", "benchmarks", *words])
    command_line.set(" ".join(["python -m benchmarks", *words]))
    if asked.out is not None:
        asked.out.mkdir(parents=True)  # an old folder is refused
    # Imported here, since it imports torch
    from benchmarks import busy, run, terminal

    def say(doing: str, done: int, of: int) -> None:
        print(f"\r{done}/{of} {doing:60.60}", end="", file=sys.stderr, flush=True)

    try:
        cases = None
        if asked.tokens or asked.kinds or asked.conditions or asked.only:
            cases = busy.Cases(
                asked.tokens or busy.LENGTHS, asked.kinds or busy.KINDS,
                asked.conditions or busy.CONDITIONS, asked.only or busy.NAMES,
            )  # fmt: skip
        found = run.benchmark(asked.parts, asked.quick, say, cases)
    except LookupError as error:
        options.error(error.args[0])
    text = json.dumps(found.to_json(), indent=1, ensure_ascii=False) + "\n"
    if asked.out is not None:
        (asked.out / "results.json").write_text(text, "utf-8")
    if asked.json:
        print(text)
    else:
        from rich.console import Console

        terminal.show(found, Console())
    return 130 if found.unmeasured else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
