"""Kinds of results against the protocol, and the names of figures against the results."""

import inspect
from importlib import import_module
from pathlib import Path

import pytest
from made_studies import plan, study
from refusals import refused

from posenc.lab.study.summary import summarise
from posenc.show.report import kinds, page
from posenc.show.report.kinds import FILES_ONLY, KINDS, Kind, figures_of, kind_of, sections_of


def test_a_result_is_shown_by_the_module_of_its_name(everything, portrait):
    for result in (everything, portrait, summarise(study(plan(seeds=1)))):
        assert kind_of(result).__name__ == f"{kinds.__name__}.{type(result).__name__.lower()}"


@pytest.mark.parametrize("result", ["rope", None, {}])
def test_what_is_no_result_is_refused(result):
    with refused(TypeError, "`result`"):
        kind_of(result)


@pytest.mark.parametrize("name", KINDS)
def test_each_kind_has_what_the_protocol_asks_for_and_a_page(name):
    module = import_module(f"{kinds.__name__}.{name}")
    for asked in ("make_figures", "print_result"):
        wanted, there = (inspect.signature(getattr(one, asked)) for one in (Kind, module))
        assert [*wanted.parameters][1:] == [*there.parameters], asked
    assert Path(kinds.__file__).with_name(f"{name}.html").exists()


def test_nothing_else_of_reports_names_a_kind():
    """A new kind is a new module with its page; no other file changes."""
    report = Path(kinds.__file__).parent.parent
    others = [one for one in report.rglob("*.py") if "kinds" not in one.parts]
    assert not [one for one in others if f"{kinds.__name__}." in one.read_text("utf-8")]


def test_a_comparison_has_a_figure_for_each_encoding(everything):
    names = set(figures_of(everything))
    assert names >= {f"{measured.slug}-figure" for measured in everything.encodings}
    assert names >= {"curves", "rows", "order", "costs"}


@pytest.mark.parametrize("kind", ["everything", "portrait"])
def test_the_page_shows_properties_as_a_table_and_all_else_as_figures(kind, request):
    result = request.getfixturevalue(kind)
    assert [*sections_of(result)[FILES_ONLY]] == ["properties"]
    html = page.render(result)
    for name in figures_of(result):
        assert html.count(f'class="figure" id="{name}"') == (name != "properties"), name


def test_a_portrait_has_the_figures_that_its_encodings_have_data_for(portrait):
    names = set(figures_of(portrait))
    assert {"clocks", "decay", "apart", "grids", "clouds"} <= names
    assert {"sinusoidal-shift", "rope-attention", "alibi-parts"} <= names
    assert {"dials", "stretch", "extensions", "bound"} <= names
    assert "alibi-similarity" not in names  # its positions have no rows


def test_a_study_has_figures_of_each_task_that_has_outcomes():
    planned = plan(tasks=["copy", "sort"], seeds=1, contrast=[["nope", "rope"]])
    names = {f"{what}-{n}" for n in range(2) for what in ("lengths", "seeds", "contrasts")}
    assert {*figures_of(summarise(study(planned)))} == names
    missed = [(name, 1) for name in planned.labels]
    assert figures_of(summarise(study(planned, missing=missed))) == {}
