"""Mutation testing: plant small faults in the source, and record which tests detect them.

    pip install coverage
    python tools/mutants.py tests/mutants.json            # an hour or two on two cores
    python tools/mutants.py tests/mutants.json --report   # the share that each run kills

A mutant changes one operator, comparison, condition or number in one line. The default tests run
once, and coverage.py records which of them executes which line. Then each mutant is planted in a
copy of the last commit, and tests run until one fails: the default tests that execute its
statement, those first that execute the fewest lines; the default tests of its folder, because what
a cache holds is executed once; the slow tests of its rooms; the compiled ones. A run that is
interrupted goes on where it was.
"""

import argparse
import ast
import contextlib
import importlib
import json
import os
import queue
import random
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parent.parent
PLANTED = {  # mutants of each room
    "core": 14, "biases": 12, "attention": 36, "rotation": 12, "encodings": 26, "properties": 12,
    "models": 24, "lab": 14,
}  # fmt: skip
LIBRARY = [
    "support", "compat", "core", "positions", "biases", "attention", "rotation", "encodings",
    "properties", "analysis",
]  # fmt: skip
LOOSE = ["tests/test_examples.py", "tests/test_faults.py", "tests/test_sharded.py"]
UNCHECKED = "--jaxtyping-packages="  # run without the shape checker, which notices more
FIRST = 100  # tests that are tried before the others are collected
LONGEST = 1200  # seconds; a mutant whose tests never end is noticed
LEFT_OUT = ("_kernel.py",)  # kernels run only on some machines
SWAPS: dict[type, tuple[str, str]] = {
    ast.Add: ("+", "-"), ast.Sub: ("-", "+"), ast.Mult: ("*", "/"), ast.Div: ("/", "*"),
    ast.Lt: ("<", "<="), ast.LtE: ("<=", "<"), ast.Gt: (">", ">="), ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="), ast.NotEq: ("!=", "=="), ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"), ast.And: ("and", "or"), ast.Or: ("or", "and"),
}  # fmt: skip
RECORDED = """[run]
parallel = true
data_file = {folder}/coverage
source = {tree}/src/posenc
context = ${{PYTEST_CURRENT_TEST-}}
patch = fork, _exit
"""  # the context of a child process is the test that begins it


class Mutant(NamedTuple):
    file: str  # from the root of the repository
    line: int
    column: int
    before: str
    after: str

    @property
    def folder(self) -> str:
        """The test folder that mirrors the folder of the mutated file, or a parent of it."""
        ups = Path(*Path(self.file).parts[2:]).parents
        return next(f"tests/{up}" for up in ups if (ROOT / "tests" / up).is_dir())

    def mutated(self, source: str) -> str:
        lines = source.splitlines(keepends=True)
        text = lines[self.line - 1]
        assert text[self.column :].startswith(self.before), self
        end = self.column + len(self.before)
        lines[self.line - 1] = text[: self.column] + self.after + text[end:]
        return "".join(lines)


def mutants_of(name: str, source: str) -> Iterator[Mutant]:
    """Yield every mutant of a file: an operator swapped, or a number raised by one."""
    lines = source.splitlines()
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
    """Yield the AST nodes that compute, without annotations, error messages, cards and reprs."""
    for field, value in ast.iter_fields(tree):
        if field in ("annotation", "returns", "decorator_list"):
            continue
        for node in value if isinstance(value, list) else [value]:
            if not isinstance(node, ast.AST) or isinstance(node, ast.Raise | ast.JoinedStr):
                continue
            shows = isinstance(node, ast.FunctionDef) and node.name.endswith(("repr__", "_html_"))
            cites = isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Card"
            if not (shows or cites):
                yield node
                yield from _computing(node)


def _column(lines: list[str], node: Any) -> int:
    """Return a node's column in characters; ast counts bytes."""
    return len(lines[node.lineno - 1].encode()[: node.col_offset].decode())


def _between(name: str, lines: list[str], left: Any, right: Any, operator: Any) -> Iterator[Mutant]:
    """Yield the mutant of the operator between two operands, if all are on one line."""
    if left.end_lineno != right.lineno:
        return
    text, number = lines[right.lineno - 1], right.lineno
    start = len(text.encode()[: left.end_col_offset].decode())
    gap, (before, after) = text[start : _column(lines, right)], SWAPS[type(operator)]
    if gap.strip("() ") == before:
        yield Mutant(name, number, start + gap.index(before), before, after)


def planted(seed: int, tree: Path = ROOT) -> list[Mutant]:
    """Draw random mutants of each subpackage, at most one per line of code, and shuffle them."""
    drawn: list[Mutant] = []
    for room, count in PLANTED.items():
        files = sorted((tree / "src/posenc" / room).rglob("*.py"))
        files = [file for file in files if not any(part in str(file) for part in LEFT_OUT)]
        names = [str(file.relative_to(tree)) for file in files]
        found = [
            one for name in names for one in mutants_of(name, (tree / name).read_text("utf-8"))
        ]
        shuffled = random.Random(f"{seed} {room}").sample(found, len(found))
        lines: dict[tuple[str, int], Mutant] = {}
        for mutant in shuffled:
            lines.setdefault((mutant.file, mutant.line), mutant)
        drawn += [*lines.values()][:count]
    return random.Random(seed).sample(drawn, len(drawn))


def record(tree: Path, data: Path) -> None:
    """Run the default tests once, and record the lines that each test executes."""
    with tempfile.TemporaryDirectory() as folder:
        settings = Path(folder) / "rc"
        settings.write_text(RECORDED.format(folder=folder, tree=tree))
        words = ["-n", "2", "--dist", "worksteal", "-p", "recorder", UNCHECKED]
        asked = pytest(words, tree, None, COVERAGE_PROCESS_START=str(settings))
        if asked.returncode:
            sys.exit(f"tests fail without a mutant: mend them first.\n{asked.stdout[-2000:]}")
        combine = [sys.executable, "-m", "coverage", "combine", "-q", f"--rcfile={settings}"]
        subprocess.run(combine, check=True)
        shutil.move(Path(folder) / "coverage", data)


class Covered:
    """The default tests, and the lines that each of them executes."""

    def __init__(self, path: Path) -> None:
        data = importlib.import_module("coverage").CoverageData(str(path))
        data.read()
        self.tests: dict[str, dict[int, set[str]]] = {}  # by file and line
        self.lines: Counter[str] = Counter()  # how many a test executes
        for file in data.measured_files():
            lines = data.contexts_by_lineno(file).items()
            by_line = {line: {*map(test_of, contexts)} for line, contexts in lines}
            self.tests[file[file.rindex("src/posenc") :]] = by_line
            for tests in by_line.values():
                self.lines.update(tests)

    def by(self, mutant: Mutant, source: str) -> list[str]:
        """Return the tests that execute the mutated line, tests of fewest lines first."""
        by_line = self.tests.get(mutant.file, {})
        found = set().union(*(by_line.get(line, ()) for line in needed(source, mutant.line)))
        return sorted(found - {""}, key=lambda test: (self.lines[test], test))


def test_of(context: str) -> str:
    """Return the name of a test from a coverage context, which may end with the test's phase."""
    name, _, phase = context.rpartition(" (")
    return name if phase in ("setup)", "call)", "teardown)") else context


def needed(source: str, line: int) -> set[int]:
    """Return lines of which a test must execute at least one to detect a mutant in `line`.

    They are those of its statement. Outside of functions, where a line runs once for all tests,
    they are the lines of all functions of the file.
    """
    nodes = [*ast.walk(ast.parse(source))]
    functions = [
        range(node.body[0].lineno, (node.end_lineno or 0) + 1)
        for node in nodes
        if isinstance(node, ast.FunctionDef)
    ]
    if not any(line in lines for lines in functions):
        return {one for lines in functions for one in lines}
    statements = [node.lineno for node in nodes if isinstance(node, ast.stmt)]
    return {*range(max(start for start in statements if start <= line), line + 1)}


def pytest(words: list[str], tree: Path, most: int | None, **more: str) -> Any:
    """Run tests for at most `most` seconds on this tree's source, not the installed package."""
    paths = os.pathsep.join(map(str, (tree / "src", ROOT / "tools")))  # for the recorder
    mine = {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1", "POSENC_BROWSER": "1"}
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *words], cwd=tree,
        env=os.environ | mine | more, capture_output=True, text=True, timeout=most,
    )  # fmt: skip


def stages(mutant: Mutant, chosen: list[str]) -> Iterator[tuple[str, list[str]]]:
    """Yield stages of tests, the likeliest to fail first: name of the run, arguments of pytest."""
    room = mutant.file.split("/")[2]
    rooms = LIBRARY if room in LIBRARY else [room, "commands"]
    usual = [UNCHECKED, "-m", "not slow"]
    if chosen:
        yield "default", [*usual, *chosen[:FIRST]]
    if chosen[FIRST:]:
        yield "default", [*usual, *chosen[FIRST:]]
    yield "default", [*usual, mutant.folder, mutant.file]
    yield "slow", [UNCHECKED, "-m", "slow", *(f"tests/{one}" for one in rooms), *LOOSE]
    if room in LIBRARY:
        yield "compiled", ["-o", "addopts=--import-mode=importlib", "tests/compiled"]


def killed_by(mutant: Mutant, tree: Path, covered: Covered) -> dict[str, str]:
    """Run the tests on a mutant, in stages, until one fails; return its stage and name."""
    file = tree / mutant.file
    source = file.read_text("utf-8")
    file.write_text(mutant.mutated(source), "utf-8")
    try:
        for run, words in stages(mutant, covered.by(mutant, source)):
            (tree / "words.txt").write_text("\n".join(words))
            try:
                asked = pytest(["-x", "@words.txt"], tree, LONGEST)
            except subprocess.TimeoutExpired:
                return {"run": run, "test": f"no end in {LONGEST} s"}
            if asked.returncode in (1, 2):  # failed, or not even collected
                lines = asked.stdout.splitlines()
                failed = [line for line in lines if line.startswith(("FAILED ", "ERROR "))]
                test = failed[0].split(" ", 1)[1].split(" - ")[0] if failed else "importing"
                return {"run": run, "test": test}
    finally:
        file.write_text(source, "utf-8")
    return {"run": "none"}


def report(outcomes: list[dict[str, Any]]) -> str:
    runs = Counter(outcome["run"] for outcome in outcomes)
    noticed = len(outcomes) - runs["none"]
    share = runs["default"] / noticed if noticed else 0.0
    return (
        f"{len(outcomes)} mutants: the default tests kill {runs['default']}, only the slow ones"
        f" {runs['slow']}, only the compiled ones {runs['compiled']}, nothing {runs['none']}; the"
        f" default tests kill {share:.1%} of what all tests kill"
    )


@contextlib.contextmanager
def copied(commit: str) -> Iterator[Path]:
    """Yield a temporary git worktree of a commit."""
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "tree"
        git = ["git", "worktree"]
        subprocess.run([*git, "add", "-q", "--detach", tree, commit], cwd=ROOT, check=True)
        try:
            yield tree
        finally:
            subprocess.run([*git, "remove", "--force", tree], cwd=ROOT, check=True)


def main() -> None:
    options = argparse.ArgumentParser(description="Plant small faults in the source.")
    options.add_argument("out", type=Path, help="a JSON file, continued if there")
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--covered", type=Path, help="a file that keeps what tests execute")
    options.add_argument("--report", action="store_true", help="only print the shares")
    asked = options.parse_args()
    commit = subprocess.check_output(["git", "rev-parse", "HEAD"], cwd=ROOT, text=True).strip()
    known = {"commit": commit, "seed": asked.seed, "mutants": []}
    if asked.out.exists():
        known = json.loads(asked.out.read_text())
    if asked.report:
        return print(report(known["mutants"]))
    with contextlib.ExitStack() as stack:
        trees: queue.Queue[Path] = queue.Queue()
        for _ in range(2):
            trees.put(stack.enter_context(copied(known["commit"])))
        data = asked.covered or Path(stack.enter_context(tempfile.TemporaryDirectory())) / "lines"
        if not data.exists():
            record(trees.queue[0], data)
        covered = Covered(data)

        def tried(mutant: Mutant) -> dict[str, Any]:
            tree = trees.get()
            try:
                return mutant._asdict() | killed_by(mutant, tree, covered)
            finally:
                trees.put(tree)

        done = [{name: one[name] for name in Mutant._fields} for one in known["mutants"]]
        drawn = planted(known["seed"], trees.queue[0])
        left = [mutant for mutant in drawn if mutant._asdict() not in done]
        with ThreadPoolExecutor(2) as pool:
            for outcome in pool.map(tried, left):
                print(outcome, flush=True)
                known["mutants"].append(outcome)
                asked.out.write_text(json.dumps(known, indent=1, ensure_ascii=False) + "\n")
    print(report(known["mutants"]))


if __name__ == "__main__":
    main()
