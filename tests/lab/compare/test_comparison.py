"""`compare` on a short text, against its own parts run by hand and against what must be so."""

import json

import pytest
import torch

from posenc import CATALOG
from posenc.catalog import find
from posenc.lab.compare.comparison import compare
from posenc.properties import any_length


def by_name(everything):
    return {measured.slug: measured for measured in everything.encodings}


def test_takes_every_encoding_in_the_order_of_the_catalogue(everything):
    assert [measured.name for measured in everything.encodings] == [card.name for card in CATALOG]


def test_only_attention_without_positions_is_blind(everything):
    """RePo computes its positions from the words alone, so that it is blind without a mask."""
    for name, measured in by_name(everything).items():
        blind = name in ("nope", "repo")
        assert (measured.shuffle.plain < 1e-4) == blind
        if not measured.causal:  # one that counts what came before may need the mask for twins
            assert (measured.duplicate.plain < 1e-4) == blind
        assert measured.duplicate.causal > 1e-3
        assert measured.shuffle.causal > 1e-3  # a causal mask betrays the order


def test_only_what_ends_refuses_a_million_and_the_relative_ones_stay(everything):
    for measured in everything.encodings:
        relative = measured.properties["shift_invariant"].holds
        changes = [far.change for far in measured.far]
        # All encodings, also Learned and xPos; Binary ends beyond a million
        ends = any_length not in find(measured.slug).holds and measured.slug != "binary"
        assert (None in changes) == ends
        assert ends or measured.slug not in ("learned", "xpos")
        assert relative == all(change < 1e-4 for change in changes if change is not None)


def test_all_see_the_same_words_and_weights(everything):
    """An encoding that adds nothing at distance 0 has the scores of no encoding there."""
    at_zero = {name: measured.curve.mean[0] for name, measured in by_name(everything).items()}
    for name in ("alibi", "rope", "p-rope", "axial-rope"):
        assert at_zero[name] == pytest.approx(at_zero["nope"], abs=1e-5)


def test_is_plain_json(everything):
    text = json.dumps(everything.to_json(), allow_nan=False)
    tree = json.loads(text)
    assert tree["encodings"][0]["properties"]["bounded"]["holds"] is None
    assert tree["encodings"][0]["properties"]["shift_invariant"]["holds"] is True
    assert tree["settings"]["window"] == 12


def test_names_choose_and_are_measured_against_nope_all_the_same(text, small):
    seen = []
    result = compare(["alibi", "RoPE", "alibi"], text, small, lambda *step: seen.append(step))
    assert [measured.slug for measured in result.encodings] == ["alibi", "rope"]
    assert result.encodings[0].cost_ratio["forward_memory"] > 1
    assert seen[-1][1] == seen[-1][2]  # all done
    assert [done for _, done, _ in seen] == sorted(done for _, done, _ in seen)


def test_the_same_text_gives_the_same_numbers_and_no_seed_is_touched(text, small):
    state = torch.get_rng_state()
    once, again = (compare(["t5", "learned"], text, small) for _ in range(2))
    assert torch.get_rng_state().equal(state)
    for a, b in zip(once.encodings, again.encodings, strict=True):
        assert (a.shuffle, a.duplicate, a.curve, a.far) == (b.shuffle, b.duplicate, b.curve, b.far)


def test_a_text_without_repeated_words_has_no_twins(text, small):
    from posenc.analysis.text import parse

    plain = parse("plain", " ".join(f"word{n}" for n in range(40)) + " .")
    assert compare(["rope"], plain, small).encodings[0].duplicate is None


def test_an_unknown_name_is_refused_with_the_nearest(text, small):
    with pytest.raises(LookupError, match="Did you mean alibi"):
        compare(["alibbi"], text, small)
