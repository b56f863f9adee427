"""The page's data, held against the cards, the configs and θ by its formula."""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from refusals import refused

from posenc import CATALOG, ALiBi, create
from posenc.catalog import find
from posenc.show.explorer import data


@pytest.fixture(scope="module")
def page():
    return json.loads(data.to_json(data.page()))


@pytest.fixture(scope="module")
def encodings(page):
    return {one["slug"]: one for one in page["encodings"]}


def test_every_card_is_on_the_page(encodings):
    assert [*encodings] == [card.slug for card in CATALOG]
    for card in CATALOG:
        one = encodings[card.slug]
        assert "sentence" not in one["graph"]
        assert {name for name, found in one["properties"].items() if found["holds"]} == {
            measure.__name__ for measure in card.holds
        }
        assert card.paper is not None
        assert one["paper"]["bibtex"] == card.paper.bibtex
        assert card.name.split()[0] in one["name"]


def test_formulas_are_mathml(encodings):
    lines = encodings["rope"]["formula"]
    assert lines
    assert all(part.startswith("<math>") for line in lines for part in line)
    assert encodings["rope"]["text"][0]["prose"]


def test_what_is_called_makes_the_encoding_of_the_graph(encodings):
    for one in encodings.values():
        graph = one["graph"]
        made = create(one["command"], graph["dim"], graph["heads"], **graph["options"])
        assert [hook.removeprefix("on_") for hook in made.acts_on] == one["acts_on"]


def test_an_encoding_of_ones_own_comes_first():
    own = find(ALiBi(4, 0.25))
    page = data.page([own])
    assert page["encodings"][0]["name"] == "ALiBi own"
    assert page["encodings"][0]["family"] == "own"
    assert page["encodings"][0]["paper"] is None
    assert page["first"] == ["alibi-own"]
    assert not page["notes"]


@given(st.text())
def test_text_of_the_users_is_kept_as_json(text):
    assert json.loads(data.to_json({"text": text})) == {"text": text}


def test_numbers_that_json_does_not_have_are_refused():
    with refused(ValueError, "JSON"):
        data.to_json({"number": math.inf})


@pytest.mark.slow
def test_another_process_measures_the_whole_catalogue(tmp_path, monkeypatch):
    monkeypatch.setenv("POSENC_CACHE", str(tmp_path))
    monkeypatch.setattr("os.cpu_count", lambda: 1)
    with data.measured_beside() as finished:
        finished()
    assert data.unmeasured() == len(CATALOG)
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    with data.measured_beside() as finished:
        finished()
    assert data.unmeasured() == 0
