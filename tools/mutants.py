"""Plant small faults in the source, and record which tests notice them.

    python tools/mutants.py --out tests/mutants.json            # plant and run: hours on two cores
    python tools/mutants.py --out tests/mutants.json --report   # the share that each run kills

A mutant changes one operator, comparison, condition or number in one line. Its tests run in a copy
of the repository, nearest first and until one fails: the test file of the module, the other default
tests of its room and of the rooms that import it, then the slow tests and the compiled ones. A run
that is interrupted goes on where it was.
"""

import argparse
import ast
import json
import os
import random
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parent.parent
PLANTED = {  # mutants of each room
    "core": 26, "attention": 36, "rotation": 12, "encodings": 26, "properties": 12, "models": 24,
    "lab": 14,
}  # fmt: skip
LIBRARY = [
    "support",
    "compat",
    "core",
    "biases",
    "attention",
    "rotation",
    "encodings",
    "properties",
    "analysis",
]
WIDER = {  # rooms whose default tests may notice a fault of this room, besides tests/*.py
    **dict.fromkeys(
        ("support", "compat", "core", "biases", "attention", "rotation", "encodings"), LIBRARY
    ),
    "properties": ["properties", "core", "encodings"],
    "models": ["models", "commands"],
    "lab": ["lab", "commands"],
}
LONGEST = 1800  # seconds; a mutant whose tests never end is noticed
LEFT_OUT = "_kernel.py", "on_ray.py"  # not run everywhere
SWAPS: dict[type, str] = {
    ast.Add: "-", ast.Sub: "+", ast.Mult: "/", ast.Div: "*", ast.Lt: "<=", ast.LtE: "<",
    ast.Gt: ">=", ast.GtE: ">", ast.Eq: "!=", ast.NotEq: "==", ast.And: "or", ast.Or: "and",
    ast.Is: "is not", ast.IsNot: "is",
}  # fmt: skip
SIGNS = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.Lt: "<", ast.LtE: "<=",
    ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!=", ast.And: "and", ast.Or: "or",
    ast.Is: "is", ast.IsNot: "is not",
}  # fmt: skip


class Mutant(NamedTuple):
    file: str  # from the root of the repository
    line: int
    column: int
    before: str
    after: str

    @property
    def room(self) -> str:
        return self.file.split("/")[2]

    def mutated(self, source: str) -> str:
        lines = source.splitlines(keepends=True)
        text = lines[self.line - 1]
        assert text[self.column :].startswith(self.before), self
        end = self.column + len(self.before)
        lines[self.line - 1] = text[: self.column] + self.after + text[end:]
        return "".join(lines)


def mutants_of(file: Path) -> Iterator[Mutant]:
    """Find every place of a file where one token can be changed."""
    source = file.read_text("utf-8")
    lines, name = source.splitlines(), str(file.relative_to(ROOT))
    for node in _computing(ast.parse(source)):
        if isinstance(node, ast.BinOp) and type(node.op) in SWAPS:
            yield from _between(name, lines, node.left, node.right, node.op)
        elif isinstance(node, ast.Compare) and type(node.ops[0]) in SWAPS:
            yield from _between(name, lines, node.left, node.comparators[0], node.ops[0])
        elif isinstance(node, ast.BoolOp):
            yield from _between(name, lines, node.values[0], node.values[1], node.op)
        elif isinstance(node, ast.Constant) and isinstance(node.value, int | float):
            before = lines[node.lineno - 1][_column(lines, node) :][: len(str(node.value))]
            if before == str(node.value) and not isinstance(node.value, bool):
                after = str(node.value + 1)
                yield Mutant(name, node.lineno, _column(lines, node), before, after)


def _computing(tree: ast.AST) -> Iterator[ast.AST]:
    """Walk what computes: not annotations, error messages, cards, or what only shows an object."""
    for field, value in ast.iter_fields(tree):
        if field in ("annotation", "returns", "decorator_list"):
            continue
        for node in value if isinstance(value, list) else [value]:
            if not isinstance(node, ast.AST) or isinstance(node, ast.Raise | ast.JoinedStr):
                continue
            shows = isinstance(node, ast.FunctionDef) and node.name.endswith(("repr__", "_html_"))
            cites = isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("Card", "Paper")
            if not (shows or cites):
                yield node
                yield from _computing(node)


def _column(lines: list[str], node: Any) -> int:
    """Count letters, where ast counts bytes."""
    return len(lines[node.lineno - 1].encode()[: node.col_offset].decode())


def _between(name: str, lines: list[str], left: Any, right: Any, operator: Any) -> Iterator[Mutant]:
    """The operator between two operands on one line, unless brackets hide which it is."""
    if left.end_lineno != right.lineno:
        return
    text, number = lines[right.lineno - 1], right.lineno
    start = len(text.encode()[: left.end_col_offset].decode())
    gap, sign = text[start : _column(lines, right)], SIGNS[type(operator)]
    if gap.strip("() ") == sign:
        yield Mutant(name, number, start + gap.index(sign), sign, SWAPS[type(operator)])


def planted(seed: int) -> list[Mutant]:
    """Draw the mutants of each room, at most one in a line."""
    drawn: list[Mutant] = []
    for room, count in PLANTED.items():
        files = sorted((ROOT / "src/posenc" / room).rglob("*.py"))
        files = [file for file in files if not any(part in str(file) for part in LEFT_OUT)]
        found = [mutant for file in files for mutant in mutants_of(file)]
        shuffled = random.Random(f"{seed} {room}").sample(found, len(found))
        lines: dict[tuple[str, int], Mutant] = {}
        for mutant in shuffled:
            lines.setdefault((mutant.file, mutant.line), mutant)
        drawn += [*lines.values()][:count]
    return drawn


def stages(mutant: Mutant) -> Iterator[tuple[str, list[str]]]:
    """Yield the tests to run, each with the name of its run: default or slow."""
    inner = Path(*Path(mutant.file).parts[2:])
    near = Path("tests") / inner.with_name(f"test_{inner.name}")
    rooms = [f"tests/{room}" for room in WIDER[mutant.room]]
    loose = ["tests/test_catalog.py", "tests/test_strangers.py", "tests/test_faults.py"]
    doctests = [mutant.file]
    usual = ["-m", "not slow"]
    if (ROOT / near).exists():
        yield "default", [str(near), *usual]
    yield "default", [f"tests/{mutant.room}", *doctests, *usual]
    yield "default", [*rooms, *loose, *usual]
    yield "slow", [*rooms, "tests/test_examples.py", "-m", "slow"]
    if mutant.room in LIBRARY:
        yield "slow", ["tests/compiled", "-o", "addopts=--import-mode=importlib"]


def killed_by(mutant: Mutant, tree: Path, most: str) -> dict[str, str]:
    """Run the stages until a test fails; return its run and its name."""
    file = tree / mutant.file
    source = file.read_text("utf-8")
    environment = os.environ | {"PYTHONPATH": str(tree / "src"), "OMP_NUM_THREADS": "1"}
    file.write_text(mutant.mutated(source), "utf-8")
    try:
        for run, words in stages(mutant):
            if run == "slow" and most == "default":
                return {}
            command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider"]
            checker = [] if "-o" in words else ["--jaxtyping-packages="]
            try:
                asked = subprocess.run(
                    [*command, *checker, *words], cwd=tree, env=environment, capture_output=True,
                    text=True, timeout=LONGEST,
                )  # fmt: skip
            except subprocess.TimeoutExpired:
                return {"run": run, "test": f"no end in {LONGEST} s"}
            if asked.returncode not in (0, 5):
                lines = asked.stdout.splitlines()
                failed = [line.split()[1] for line in lines if line.startswith(("FAILED", "ERROR"))]
                return {"run": run, "test": failed[0] if failed else "collecting or importing"}
    finally:
        file.write_text(source, "utf-8")
    return {"run": "none"}


def report(outcomes: list[dict[str, Any]]) -> str:
    runs = Counter(outcome["run"] for outcome in outcomes)
    noticed = runs["default"] + runs["slow"]
    share = runs["default"] / noticed if noticed else 0.0
    return (
        f"{len(outcomes)} mutants: the default tests kill {runs['default']}, the slow ones another"
        f" {runs['slow']}, nothing kills {runs['none']}; the default tests kill {share:.1%} of what"
        " all tests kill"
    )


def main() -> None:
    options = argparse.ArgumentParser(description="Plant small faults in the source.")
    options.add_argument("--out", type=Path, required=True, help="a JSON file, continued if there")
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--most", choices=("default", "slow"), default="slow")
    options.add_argument("--part", default="1/1", help="2/2: the second half of the mutants")
    options.add_argument("--report", action="store_true", help="only print the shares")
    asked = options.parse_args()
    known = json.loads(asked.out.read_text()) if asked.out.exists() else []
    if asked.report:
        return print(report(known))
    place, parts = map(int, asked.part.split("/"))
    done = {tuple(outcome["mutant"]) for outcome in known if outcome["run"] != "survived"}
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "tree"
        subprocess.run(["git", "worktree", "add", "-q", "--detach", tree], cwd=ROOT, check=True)
        try:
            for mutant in planted(asked.seed)[place - 1 :: parts]:
                if tuple(mutant) in done:
                    continue
                outcome = killed_by(mutant, tree, asked.most) or {"run": "survived"}
                known = [one for one in known if tuple(one["mutant"]) != tuple(mutant)]
                known.append({"mutant": [*mutant], **outcome})
                asked.out.write_text(json.dumps(known, indent=1, ensure_ascii=False) + "\n")
                print(f"{mutant.file}:{mutant.line} {mutant.before} -> {mutant.after}: {outcome}")
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", tree], cwd=ROOT, check=True)
    print(report(known))


if __name__ == "__main__":
    main()
