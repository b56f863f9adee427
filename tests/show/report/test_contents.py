"""Names of figures against the results that they are of."""

import pytest
from made_studies import plan, study

from posenc.lab.study.summary import summarise
from posenc.show.report.contents import figures_for_paper, figures_of


def test_a_comparison_has_a_figure_for_each_encoding(everything):
    names = set(figures_of(everything))
    assert names >= {f"{measured.slug}-figure" for measured in everything.encodings}
    assert names >= {"curves", "rows", "order", "costs"}


@pytest.mark.parametrize("kind", ["everything", "portrait"])
def test_paper_also_has_the_properties_which_the_page_shows_as_a_table(kind, request):
    result = request.getfixturevalue(kind)
    assert list(figures_for_paper(result)) == ["properties", *figures_of(result)]


def test_benchmarks_have_a_figure_for_each_table_and_each_growth(benchmarked):
    names = [f"table-{n}" for n in range(4)] + ["growth-rotation"]
    assert list(figures_of(benchmarked)) == list(figures_for_paper(benchmarked)) == names


def test_a_portrait_has_the_figures_that_its_encodings_have_data_for(portrait):
    names = figures_of(portrait)
    assert {"codes", "vectors", "turning", "decay", "grids", "clouds"} <= set(names)
    assert {"sinusoidal-shift", "rope-attention", "alibi-parts"} <= set(names)
    assert {"dials", "stretch", "extensions", "bound"} <= set(names)
    assert "alibi-similarity" not in names  # its positions have no rows


def test_a_study_has_figures_of_each_task_that_has_outcomes():
    planned = plan(tasks=["copy", "sort"], seeds=1, contrast=[["nope", "rope"]])
    names = [f"{what}-{n}" for n in range(2) for what in ("lengths", "seeds", "contrasts")]
    assert [*figures_of(summarise(study(planned)))] == [*names, "profiles"]
    missed = [(name, 1) for name in planned.labels]
    assert figures_of(summarise(study(planned, missing=missed))) == {}
