"""Lines against weights that are made up."""

from dataclasses import replace

from posenc.show.report.kinds.inspection.weights import figures


def test_a_learned_table_shows_where_training_ended(weighed):
    (table,) = weighed.tables
    norm, likeness = figures.table(table).panels
    line, rule = norm.marks
    assert (list(line.x), line.y) == (list(range(8)), table.learned.norms)
    assert (rule.at, rule.name) == (6, "untrained from here")
    assert list(likeness.marks[0].x) == list(range(1, 8))  # of each row and the one before


def test_a_long_table_is_thinned_to_as_many_points_as_are_seen(weighed):
    (table,) = weighed.tables
    norms = [float(n) for n in range(5000)]
    learned = replace(table.learned, norms=norms, likeness=[1.0] * 4999)
    line = figures.table(replace(table, rows=5000, learned=learned)).panels[0].marks[0]
    assert len(line.x) == len(line.y) <= figures.MOST_POINTS
    assert line.y == [float(n) for n in line.x]


def test_a_table_of_a_formula_has_no_figure(weighed):
    assert figures.table(replace(weighed.tables[0], learned=None)) is None


def test_each_head_of_a_bias_is_a_line(weighed):
    (bias,) = weighed.biases
    lines = figures.bias(bias).panels[0].marks
    assert [line.y for line in lines] == bias.steps.heads
    assert all(line.x == bias.steps.distance for line in lines)


def test_each_table_of_distances_has_a_panel(weighed):
    panels = figures.relative(weighed.relative).panels
    assert [panel.title for panel in panels] == ["layers.0.emb_rel_k", "layers.1.emb_rel_k"]
    assert figures.relative([]) is None


def test_the_strongest_pairs_are_named(weighed):
    figure = figures.bands(weighed.bands)
    assert [line.y for line in figure.panels[0].marks] == [[1.0, 2.0], [3.0, 0.5]]
    assert "queries, layers 0–2 in pair 1; keys, layers 0–2 in pair 0" in figure.says
    assert figures.bands([]) is None
