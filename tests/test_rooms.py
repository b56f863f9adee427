"""The plan of the house, held against every import of `src`, those within functions included, and
against the tests, which mirror it.
"""

import ast
import functools
from collections import defaultdict
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src/posenc"
WINGS = {  # all that lies at the top of the package, from the ground up
    *(
        "support",
        "compat",
        "core",
        "positions",
        "attention",
        "rotation",
        "biases",
        "properties",
        "encodings",
        "catalog",
        "analysis",
    ),
    *("models", "lab", "show", "commands"),
}
DOORS = {"__init__", "__main__", "testing"}  # public names, `python -m posenc`, and for pytest
FLOORS = (  # from the ground up: a room imports from rooms below it, and from itself
    "support",
    "compat",
    "core",
    "positions",
    "attention",  # with the engine on the CPU, by which biases compute their tiles
    "rotation",
    "biases",
    "properties",
    "encodings",
    "catalog",
    "testing",
    "analysis",
    "models.files",
    "models.weights",
    "models.config",
    "models.hf",
    "models",
    "lab.compare",
    "lab.study",
    "lab",
    "show.report.interrupt",
    "show.report.output_folder",
    "show.report.drawing",
    "show.report.phrases",
    "show.report.guide",
    "show.report.terminal",
    "show.report.figures",
    "show.report.kinds",
    "show.report",
    "show.explorer",
    "show",
    "commands",
    "__main__",
)
FILES = sorted(SOURCE.rglob("*.py"))


def name_of(file: Path) -> str:
    inner = file.relative_to(SOURCE).with_suffix("").parts
    return ".".join(("posenc", *(inner[:-1] if inner[-1] == "__init__" else inner)))


MODULES = {name_of(file): file for file in FILES}


@functools.cache
def imported(file: Path) -> frozenset[str]:
    """Modules of the house that the file imports, wherever in it."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.level:
            raise AssertionError(f"{file}: must import by absolute names, got a relative import")
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names if alias.name.startswith("posenc")}
        elif isinstance(node, ast.ImportFrom) and str(node.module).startswith("posenc"):
            whole = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= {name if name in MODULES else str(node.module) for name in whole}
    return frozenset(found)


def floor(module: str) -> int:
    inner = module.removeprefix("posenc").lstrip(".")
    if not inner:
        return len(FLOORS)  # `__init__` hands on what all rooms hold
    rooms = [room for room in FLOORS if inner == room or inner.startswith(f"{room}.")]
    assert rooms, f"{module} has no place in the plan"
    return FLOORS.index(max(rooms, key=len))


def test_the_folders_show_the_wings():
    """Held against what lies there: a newcomer sees the house in its first folder."""
    there = {p.stem for p in SOURCE.iterdir() if p.suffix == ".py" or (p / "__init__.py").exists()}
    assert there == WINGS | DOORS


@pytest.mark.parametrize("module", MODULES)
def test_imports_point_down(module):
    upwards = [other for other in imported(MODULES[module]) if floor(other) > floor(module)]
    assert not upwards, f"{module} imports from above: {', '.join(upwards)}"


def test_no_modules_import_each_other_in_a_circle():
    left = {module: imported(file) - {module} for module, file in MODULES.items()}
    while left:
        free = {module for module, others in left.items() if not others & left.keys()}
        assert free, f"in a circle, or above one: {', '.join(sorted(left))}"
        left = {module: others for module, others in left.items() if module not in free}


ELSEWHERE = {  # modules that no test file has the name of: where they are tested, and why there
    "posenc.__main__": ("commands/test_cli.py", "two lines: `python -m posenc` is begun there"),
    "posenc.support.version": ("test_readme.py", "one line, held against what is cited"),
    "posenc.models.check.contradictions": (
        "models/check/test_faults.py",
        "rules like the others, met by one table of planted faults",
    ),
    "posenc.encodings.rotary.layouts": (
        "positions/test_layouts.py",
        "one record has the ids and the axes of the pairs of each layout",
    ),
    "posenc.lab.vectors.known_faults": (
        "lab/vectors/test_against.py",
        "faulty implementations are planted, and `against` names them",
    ),
    "posenc.lab.vectors.observed": ("lab/vectors/test_against.py", "the same"),
    "posenc.show.explorer.ready": (
        "commands/test_explore.py",
        "the command decides which page opens first",
    ),
    "posenc.core.shapes": (
        "helpers/checker.py",
        "names of types, which the checker holds in every test",
    ),
}


def test_tests_mirror_the_source():
    """`__init__` of a room hands on what its modules hold; some have a file all the same."""
    tests, lacking = Path(__file__).parent, []
    for module, file in MODULES.items():
        place = file.relative_to(SOURCE).with_name(f"test_{file.name}")
        if module.startswith("posenc.models.config.families."):
            continue  # each has a line in test_families.py, which counts them
        there = (tests / place).exists() or (tests / "compiled" / place.name).exists()
        if file.name != "__init__.py" and not there and module not in ELSEWHERE:
            lacking.append(f"{module}: tests/{place}")
    assert not lacking, f"without a test file of their name: {', '.join(lacking)}"
    for module, (file, reason) in ELSEWHERE.items():
        assert module in MODULES, f"{module} is no module: strike it off"
        assert (tests / file).exists(), f"{module}: {reason}"


def test_a_class_name_stands_once_in_the_house():
    """Or a search for it, and a message that names it, would lead to two places."""
    places = defaultdict(list)
    for module, file in MODULES.items():
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(module)
    assert {name: where for name, where in places.items() if len(where) > 1} == {}


LIBRARY_TESTS = "core", "positions", "biases", "attention", "rotation", "encodings"
ABOVE = "analysis", "models", "lab", "show", "commands"


@pytest.mark.parametrize("folder", LIBRARY_TESTS)
def test_tests_of_the_library_import_nothing_above_it(folder):
    """Read from the imports of the tests, and of the helpers that they import."""
    tests = Path(__file__).parent
    left, read = [*(tests / folder).rglob("*.py")], set()
    while left:
        file = left.pop()
        read.add(file)
        for name in imports_of(file):
            assert not name.startswith(tuple(f"posenc.{room}" for room in ABOVE)), (file, name)
            helper = tests / "helpers" / f"{name.partition('.')[0]}.py"
            if helper.exists() and helper not in read:
                left.append(helper)


def imports_of(file):
    """All modules that a file imports, those within functions included."""
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
