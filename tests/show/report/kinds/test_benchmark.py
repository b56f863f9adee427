"""Points and lines against benchmarks that are made up."""

import pytest

from posenc.show.report.kinds import benchmark


def test_ratios_are_shown_ours_apart_from_others(benchmarked):
    table = benchmarked.tables[0]
    ours, others, limit = benchmark.ways(table).panels[0].marks
    assert (ours.x, ours.y) == ([2.41], [1])
    assert (others.x, others.y) == ([1.0, 12.4], [0, 2])
    assert limit.at == 1
    assert "posenc half: blocks takes 2.41 times as long" in benchmark.ways(table).says


def test_growth_is_a_line_for_each_way_with_its_exponent(benchmarked):
    figure = benchmark.growth("rotation", benchmarked.growth)
    lines = figure.panels[0].marks
    assert [line.name.partition(":")[0] for line in lines] == ["a copy", "posenc half"]
    assert lines[0].x == [256, 512, 1024]
    assert lines[0].y == pytest.approx([1.1, 2.3, 4.9])  # milliseconds
    assert "up to 1,024 tokens" in figure.says
