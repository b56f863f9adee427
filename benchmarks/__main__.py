"""The command `python -m benchmarks`: posenc and other libraries, from the repository's root."""

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.timing import WARM
from posenc.support.provenance import command_line


def main(words: Sequence[str]) -> int:
    """Measure, print tables, and return the exit status; an interrupted run prints its results."""
    options = argparse.ArgumentParser(
        "python -m benchmarks", description="Measure posenc beside other libraries, as ratios."
    )
    options.add_argument("parts", nargs="*", help="see benchmarks/README.md; default: most")
    options.add_argument("--quick", action="store_true", help="fewer cases, three minutes")
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
    chosen = options.parse_args(words)
    warm = all(os.environ.get(key) == value for key, value in WARM.items())
    if chosen.malloc == "warm" and not warm:
        # The allocator reads these variables when a process starts, so start again
        os.environ |= WARM
        os.execv(sys.executable, [sys.executable, "-m", "benchmarks", *words])
    command_line.set(" ".join(["python -m benchmarks", *words]))
    if chosen.out is not None:
        chosen.out.mkdir(parents=True)  # raises FileExistsError for an old folder
    # Imported here, because it imports torch
    from benchmarks import busy, run, terminal

    def progress(doing: str, done: int, of: int) -> None:
        print(f"\r{done}/{of} {doing:60.60}", end="", file=sys.stderr, flush=True)

    try:
        cases = None
        if chosen.tokens or chosen.kinds or chosen.conditions or chosen.only:
            cases = busy.Cases(
                chosen.tokens or busy.LENGTHS, chosen.kinds or busy.KINDS,
                chosen.conditions or busy.CONDITIONS, chosen.only or busy.NAMES,
            )  # fmt: skip
        found = run.benchmark(chosen.parts, chosen.quick, progress, cases)
    except LookupError as error:
        options.error(error.args[0])
    text = json.dumps(found.to_json(), indent=1, ensure_ascii=False) + "\n"
    if chosen.out is not None:
        (chosen.out / "results.json").write_text(text, "utf-8")
    if chosen.json:
        print(text)
    else:
        from rich.console import Console

        terminal.print_tables(found, Console())
    return 130 if found.unmeasured else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
