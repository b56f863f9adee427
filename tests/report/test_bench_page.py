"""The page and the tables of benchmarks, against the numbers that they were given."""

import json
from io import StringIO
from itertools import product

import pytest
from lookup import missing
from rich.console import Console

from posenc.bench import growth
from posenc.bench.record import Row, Table, Target
from posenc.bench.run import Benchmark
from posenc.bench.timing import Times
from posenc.provenance import since
from posenc.report import bench_terminal, page

HOSTILE = '</script><script>alert("x")</script>'


def table(part, case):
    rows = [
        Row("a copy", Times(0.00123, 0.00121, 21, 2), 1.0),
        Row("posenc half: blocks", Times(0.00297, 0.00291, 19, 4), 2.41, 8.1e-8, 48.2),
        Row(f"others {HOSTILE}", Times(0.0153, 0.0147, 20, 3), 12.4, 1.7e-4, 96.9),
    ]
    targets = [Target("half / a copy", 2.41, 2.8), Target("half, MB", 48.2, 30.0)]
    return Table(part, case, "a copy", rows, {"torchtune": HOSTILE}, "warm", 2, targets)


@pytest.fixture(scope="module")
def found():
    tables = [table(*one) for one in product(("rotation", "attention"), ("long", "short"))]
    times = {256: 0.0011, 512: 0.0023, 1024: 0.0049}
    grown = [growth.fitted("rotation", name, times) for name in ("a copy", "posenc half")]
    libraries = {"transformers": "5.23.0"}
    return Benchmark(tables, grown, True, "A processor, AVX2", libraries, since(0.0, seed=0))


def test_every_number_of_the_page_is_in_its_json(found):
    tree = found.to_json()
    seconds = [
        value
        for one in tree["tables"]
        for row in one["rows"]
        for value in (row["times"]["median"], row["times"]["least"])
    ]
    seconds += [value for one in tree["growth"] for value in one["seconds"]]
    shown_as = {unit: [size * s for s in seconds] for unit, size in (("ms", 1e3), ("µs", 1e6))}
    totals = [len(tree["tables"]), 4, 8]  # met, of all
    assert missing(page.render(found), tree | {"shown as": shown_as, "totals": totals}) == []
    assert "48.2" in page.render(found)


def test_names_of_others_change_no_element(found):
    html = page.render(found)
    assert 'alert("x")' not in html
    assert html.count("<script") == page.render(found).count("</script>")


def test_a_missed_target_is_said(found):
    html = page.render(found)
    assert "4 of 8 are met" in html
    assert html.count(">missed<") == 4


def test_opens_alone_and_everybody_can_read_it(found, visit, tmp_path):
    page.write(found, tmp_path)
    for scheme, width in (("light", 1280), ("dark", 400)):
        seen = visit(tmp_path / page.PAGE, scheme, width=width)
        assert (seen.said, seen.asked, seen.violations) == ([], [], [])
        assert seen.wide <= 0
    assert json.loads((tmp_path / page.NUMBERS).read_text())["tables"][0]["targets"][1] == {
        "what": "half, MB",
        "found": 48.2,
        "most": 30.0,
        "met": False,
    }


def test_tables_on_the_terminal(found):
    console = Console(width=100, record=True, file=StringIO())
    bench_terminal.benchmark(found, console)
    text = console.export_text()
    for said in ("posenc half: blocks", "2.97", "2.41", "19 / 4", "4 of 8 targets met", "missed"):
        assert said in text
    assert "left out: torchtune" in text
    assert max(map(len, text.splitlines())) <= 100
