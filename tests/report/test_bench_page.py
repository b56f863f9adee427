"""The page and the tables of benchmarks, against the numbers that they were given."""

from io import StringIO

from lookup import missing
from rich.console import Console

from posenc.report import page
from posenc.report.terminal import benchmarks


def test_every_number_of_the_page_is_in_its_json(benchmarked):
    tree = benchmarked.to_json()
    seconds = [
        value
        for one in tree["tables"]
        for row in one["rows"]
        for value in (row["times"]["median"], row["times"]["least"])
    ]
    seconds += [value for one in tree["growth"] for value in one["seconds"]]
    shown_as = {unit: [size * s for s in seconds] for unit, size in (("ms", 1e3), ("µs", 1e6))}
    totals = [len(tree["tables"]), 4, 8]  # met, of all
    assert missing(page.render(benchmarked), tree | {"shown as": shown_as, "totals": totals}) == []
    assert "48.2" in page.render(benchmarked)


def test_names_of_others_change_no_element(benchmarked):
    html = page.render(benchmarked)
    assert 'alert("x")' not in html
    assert "&lt;script&gt;alert(" in html


def test_a_missed_target_is_said(benchmarked):
    html = page.render(benchmarked)
    assert "4 of 8 are met" in html
    assert html.count(">missed<") == 4


def test_whether_a_target_is_met_is_in_the_json(benchmarked):
    told = benchmarked.to_json()["tables"][0]["targets"]
    assert [one["met"] for one in told] == [True, False]


def test_tables_on_the_terminal(benchmarked):
    console = Console(width=100, record=True, file=StringIO())
    benchmarks.benchmark(benchmarked, console)
    text = console.export_text()
    for said in ("posenc half: blocks", "2.97", "2.41", "19 / 4", "4 of 8 targets met", "missed"):
        assert said in text
    assert "left out: torchtune" in text
    assert max(map(len, text.splitlines())) <= 100
