"""`studies/recompute.py`, which shares no code with posenc, against posenc's own analysis."""

import ast
import json
import runpy
import sys

import pytest
from stored_outcomes import STUDIES

from posenc.lab.study.analysis import analyse
from posenc.lab.study.store import read

pytestmark = pytest.mark.repository
SCRIPT = STUDIES / "recompute.py"
NEAR = 2e-4  # posenc interpolates a table of t, which is less exact for two seeds; pages have 1e-3
FOLDERS = sorted({path.parent for path in STUDIES.glob("*/r*.db")})


@pytest.fixture(scope="module")
def script():
    return runpy.run_path(str(SCRIPT))


def ends(interval):
    return [interval.value, interval.low, interval.high]


def test_it_imports_numpy_and_the_standard_library_alone():
    nodes = [*ast.walk(ast.parse(SCRIPT.read_text()))]
    named = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    named |= {node.module for node in nodes if isinstance(node, ast.ImportFrom)}
    assert {name.partition(".")[0] for name in named} <= {"numpy", *sys.stdlib_module_names}


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: path.name)
def test_each_number_of_a_study_is_recomputed(script, folder):
    found = json.loads(json.dumps(script["recompute"](folder)))
    result = analyse(read(folder))
    rows = {(row.task, row.encoding): row for row in result.rows if row.seeds}
    assert {(one["task"], one["row"]) for one in found["rows"]} == rows.keys()
    for one in found["rows"]:
        row = rows[one["task"], one["row"]]
        assert one["seeds"] == len(row.seeds)
        assert one["means"] == {str(n): pytest.approx(mean) for n, mean in row.means.items()}
        if row.value is None:
            assert one["metric"] is None
        else:
            assert one["metric"] == pytest.approx(ends(row.value), abs=NEAR)
    contrasts = [one for one in result.contrasts if one.difference is not None]
    assert len(found["contrasts"]) == len(contrasts)
    for one, contrast in zip(found["contrasts"], contrasts, strict=True):
        assert one["sides"][:2] == [[*contrast.one], [*contrast.other]]
        assert one["difference"] == pytest.approx(ends(contrast.difference), abs=NEAR)
        assert one["above"] == sum(x > 1e-9 for x in contrast.by_seed)
        assert (one["p"], one["holm"]) == pytest.approx((contrast.p, contrast.adjusted))


def test_its_statistics_have_published_values(script):
    """Quantiles of t from published tables; p and Holm by hand."""
    assert script["t_quantile"](0.975, 7) == pytest.approx(2.365, abs=5e-4)
    assert script["t_quantile"](0.975, 1_000) == pytest.approx(1.962, abs=5e-4)
    assert script["t_quantile"](0.975, 1) == pytest.approx(12.706, abs=5e-3)
    assert script["sign_flip"]([0.0] * 6) == 1
    assert script["sign_flip"]([1.0] * 6) == 2 / 64
    assert script["holm"]([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
