"""A closer look, against attention formed from its parts and against the text itself."""

import json
from itertools import pairwise

import pytest
import torch

from posenc.analysis.text import parse
from posenc.lab.compare import comparison
from posenc.lab.compare.portrait import portray
from posenc.show.report.kinds import figures_of

SHOWN = "similarity", "shift", "advance", "clocks", "waves", "clouds", "patches"


@pytest.fixture(scope="module")
def close(portrait):
    return {one.slug: one for one in portrait.encodings}


def test_each_shows_what_it_has_and_nothing_else(close):
    shown = {
        slug: [name for name in SHOWN if getattr(one, name) is not None]
        for slug, one in close.items()
    }
    assert shown == {
        "sinusoidal": ["similarity", "shift", "advance", "waves", "clouds"],
        "rope": ["similarity", "shift", "advance", "clocks", "waves"],
        "alibi": [],
        "axial-rope": ["similarity", "patches"],
    }


def test_progress_counts_up_to_its_last_step(portrait, small, text, monkeypatch):
    steps = []

    def compare(cards, text, settings, progress):
        for n in range(3):
            progress("comparing", n, 3)
        return portrait.comparison

    monkeypatch.setattr(comparison, "compare", compare)
    portray(["alibi"], text, small, progress=lambda *step: steps.append(step))
    _, last, of = steps[-1]
    assert last == of - 1
    assert [step for _, step, _ in steps] == sorted(step for _, step, _ in steps)
    assert {of for *_, of in steps} == {of}


def test_attention_is_the_softmax_of_the_parts_together(close):
    for one in close.values():
        scores = sum(torch.tensor(part) for part in one.parts.parts.values())
        torch.testing.assert_close(
            scores.softmax(-1), torch.tensor(one.attention), rtol=1e-4, atol=1e-5
        )


def test_the_words_are_those_of_the_sentence(portrait):
    many = len(portrait.sentence)
    assert all(len(one.attention[0]) == many for one in portrait.encodings)
    assert all(len(one.without[0]) == many for one in portrait.encodings)


def test_frequencies_are_of_the_first_that_turns_along_a_line(portrait):
    found = portrait.turning
    assert found.slug == "rope"
    assert found.peak.best == found.peak.target
    places = [list(pairwise(one.words)).index(found.pair) for one in found.sentences.values()]
    assert len(set(places)) == 2
    angles = [one.angle(n, n + 1) for one, n in zip(found.sentences.values(), places, strict=True)]
    assert angles[0] == pytest.approx(angles[1], abs=0.01)


def test_is_plain_json_with_the_comparison_as_it_was(portrait):
    tree = json.loads(json.dumps(portrait.to_json(), allow_nan=False))
    assert tree["encodings"] == json.loads(json.dumps(portrait.comparison.to_json()))["encodings"]
    assert [one["slug"] for one in tree["portrait"]["encodings"]] == list(
        one.slug for one in portrait.encodings
    )


def test_a_text_without_such_a_pair_and_no_rotation(small):
    plain = parse("plain", " ".join(f"word{n}" for n in range(40)) + " .")
    state = torch.get_rng_state()
    found = portray(["rope"], plain, settings=small)
    assert torch.get_rng_state().equal(state)
    assert (found.turning.pair, found.turning.sentences) == (None, {})
    assert portray(["alibi"], plain, settings=small).turning is None


def test_how_alike_positions_are_is_compared_at_one_width(portrait, small):
    """Sinusoidal and RoPE have the same frequencies at the same width, so the same likeness."""
    waves = {closeup.slug: closeup.waves for closeup in portrait.encodings if closeup.waves}
    assert waves["sinusoidal"].channels == waves["rope"].channels == small.dim
    assert waves["sinusoidal"].share == waves["rope"].share
    titles = [panel.title for panel in figures_of(portrait)["decay"].panels]
    assert titles == [f"Sinusoidal and RoPE, {small.dim} channels"]  # one curve, drawn once
