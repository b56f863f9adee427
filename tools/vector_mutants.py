"""Plant small faults in the code of θ, rotations and position ids, to test the test vectors.

    python -m tools.vector_mutants tests/vector_mutants.json --seed 20263    # ten minutes

Each fault changes one operator, comparison or number, as in `tools/mutants.py`. A process with the
fault computes the core set of the vectors, and compares it with the file that the sound code wrote.
A fault is noticed by the first number that differs, by an error, or by a process that never ends.
Argument checks, and the functions in `ELSEWHERE`, compute none of these numbers and get no faults.
"""

import argparse
import ast
import importlib
import json
import os
import random
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from importlib.machinery import SourceFileLoader
from pathlib import Path
from typing import Any

# tools.mutants imports nothing of posenc, so each process below begins without it
from tools.mutants import Mutant, mutants_of

ROOT = Path(__file__).parent.parent
SOURCE = "src/posenc"
FILES = (
    *("core/frequencies.py", "core/positions.py"),
    *("rotation/rotate.py", "rotation/table.py", "rotation/torch_kernels.py"),
    *(f"encodings/rotary/{name}.py" for name in ("theta", "extension", "axial", "mrope", "p_rope")),
    *(f"encodings/rotary/{name}.py" for name in ("rope", "xpos", "mixed", "fope", "remaps")),
    *(f"positions/{name}.py" for name in ("canvas", "diffusion", "grids", "multimodal", "rules")),
)
ELSEWHERE = {  # functions that give no number of the vectors
    "_named": "for messages",
    "theta.yarn_gain": "recognises the usual gain of a config",
    "theta.longrope_gain": "recognises the usual gain of a config",
    "base_of": "for representations",
    "extra_repr": "for representations",
    "_stated": "for representations",
    "_short": "for representations",
    "_repr_html_": "for representations",
    "_counted": "for messages",
    "not_positions": "for messages",
    "exact": "checks an argument",
    "_countable": "checks an argument",
    "checked": "checks an argument",
    "counts": "checks an argument",
    "refuse_broadcast": "checks an argument",
    "refuse_other_axes": "checks an argument",
    "refuse_left_over": "checks an argument",
    "_refuse": "checks an argument",
    "_fewer": "checks an argument",
    "slanted": "random",
    "randomised": "random",
    "skipped": "random",
    "moved": "random, and a second rotation of keys",
    "_mixed": "random",
    "backward": "a gradient",
    "_pairs": "a gradient",
    "arithmetic_progression": "selects a fast path of biases",
    "common_step": "selects a fast path of biases",
    "_blocks": "divides the work",
    "_cut": "divides the work",
    "_float32_like": "divides the work",
}
# Names of limits beyond which an argument is refused
LIMITS = {"FAR", "CONSECUTIVE", "MOST_AXES", "fastest", "LARGEST", "reach"}
LONGEST = 60  # seconds of computing


def faults() -> Iterator[Mutant]:
    """Yield every fault that can be planted in the tested files."""
    for name in (f"{SOURCE}/{file}" for file in FILES):
        source = (ROOT / name).read_text("utf-8")
        found = _left_out(ast.parse(source), Path(name).stem)
        left_out = {line for lines in found for line in lines}
        yield from (one for one in mutants_of(name, source) if one.line not in left_out)


def _left_out(tree: ast.AST, module: str) -> Iterator[range]:
    """Yield lines of argument checks, and of functions whose results no test vector contains."""
    for node in ast.walk(tree):
        name = getattr(node, "name", "")
        if isinstance(node, ast.FunctionDef) and {name, f"{module}.{name}"} & {*ELSEWHERE}:
            yield range(node.lineno, (node.end_lineno or 0) + 1)
        if isinstance(node, ast.Assign) and LIMITS & {
            getattr(x, "id", getattr(x, "attr", "")) for x in node.targets
        }:
            yield range(node.lineno, (node.end_lineno or 0) + 1)
        if isinstance(node, ast.If) and isinstance(node.body[-1], ast.Raise):
            yield range(node.lineno, (node.body[-1].end_lineno or 0) + 1)


def noticed_by(mutant: Mutant, folder: Path) -> str:
    """Return the test vector that detects a fault, or the error; "" if no vector differs."""
    path = str(ROOT / mutant.file)
    code = compile(mutant.mutated(Path(path).read_text("utf-8")), path, "exec")
    sound = SourceFileLoader.get_code

    def get_code(self: SourceFileLoader, fullname: str) -> Any:
        return code if self.path == path else sound(self, fullname)

    def check() -> str:
        SourceFileLoader.get_code = get_code
        return first_difference(folder)

    return in_process(check)


def first_difference(folder: Path) -> str:
    """Return the first difference between computed core test vectors and the file; "" if none."""
    files = importlib.import_module("posenc.lab.vectors.files")
    read = json.loads((folder / files.CORE).read_text("utf-8"))["cases"]
    written = {data["name"]: data for data in read}
    for case in files.cases():
        if case.core and (data := written.pop(case.name, None)):
            for difference in files.differences(data, case):
                return difference
    return f"{len(written)} cases are missing" if written else ""


def in_process(work: Callable[[], str]) -> str:
    """Run `work` in a process of its own; return the result, or the error that ended it."""
    with tempfile.TemporaryFile("w+") as result:
        child = os.fork()
        if not child:
            signal.setitimer(signal.ITIMER_PROF, LONGEST)
            try:
                found = work()
            except BaseException as error:
                found = f"{type(error).__name__}: {error}"[:120]
            result.write(found)
            result.flush()
            os._exit(0)
        _, status = os.waitpid(child, 0)
        result.seek(0)
        return f"no end in {LONGEST} s" if status else result.read()


def report(record: dict[str, Any]) -> str:
    """Return a sentence with the share of planted faults that the test vectors detect."""
    planted = [one for one in record["faults"] if "equivalent" not in one]
    noticed = sum(bool(one["noticed"]) for one in planted)
    return (
        f"{len(record['faults'])} faults, {len(record['faults']) - len(planted)} without effect:"
        f" the core set notices {noticed} of {len(planted)}, {noticed / len(planted):.1%}"
    )


def main() -> None:
    options = argparse.ArgumentParser(description="Plant small faults, and check the test vectors.")
    options.add_argument("out", type=Path, help="a JSON file")
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--count", type=int, default=60, help="number of faults")
    asked = options.parse_args()
    importlib.import_module("torch")  # once, and not in each process
    found = [*faults()]
    # The first faults of a seed are the same for every count
    drawn = random.Random(asked.seed).sample(found, len(found))[: asked.count]
    reasons = {}
    if asked.out.exists():
        reasons = {
            _key(one): one["equivalent"]
            for one in json.loads(asked.out.read_text("utf-8"))["faults"]
            if "equivalent" in one
        }
    record: dict[str, Any] = {"seed": asked.seed, "of": len(found), "faults": []}
    with tempfile.TemporaryDirectory() as work:
        folder = Path(work) / "vectors"
        if sound := in_process(lambda: _written(folder)):
            sys.exit(sound)
        for number, mutant in enumerate(drawn):
            text = (ROOT / mutant.file).read_text("utf-8").splitlines()[mutant.line - 1].strip()
            outcome = mutant._asdict() | {"text": text, "noticed": noticed_by(mutant, folder)}
            if not outcome["noticed"] and _key(outcome) in reasons:
                outcome["equivalent"] = reasons[_key(outcome)]
            record["faults"].append(outcome)
            print(number, outcome, flush=True)
            asked.out.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", "utf-8")
    print(report(record))


def _key(one: dict[str, Any]) -> tuple[Any, ...]:
    """Return what identifies a fault even if lines above it have changed."""
    return one["file"], one["text"], one["column"], one["after"]


def _written(folder: Path) -> str:
    importlib.import_module("posenc.lab.vectors.files").write(folder)
    return first_difference(folder)


if __name__ == "__main__":
    main()
