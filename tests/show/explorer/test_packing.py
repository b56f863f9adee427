"""Data packed for the page, against the data that the page's own script reads."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from javascript import evaluate

from posenc.show.explorer import data, packing

LONG = [n / 7 for n in range(packing.LEAST)]
PAGE = {
    "schema": data.SCHEMA,
    "models": [{"θ": LONG, "at": None}, {"θ": [*LONG], "of": [[*LONG], [LONG, LONG]]}],
    "text": "</script>",
    "empty": [[], {}],
}


def test_a_long_list_is_stated_once():
    text = packing.to_json(packing.packed(PAGE))
    assert packing.to_json(PAGE).count(str(LONG[-1])) == 5
    assert text.count(str(LONG[-1])) == 1


def test_the_script_of_the_page_reads_the_same_data():
    read = evaluate(
        ["page/data.js"], "(json) => readData(json)", packing.to_json(packing.packed(PAGE))
    )
    assert read == PAGE


LEAVES = st.none() | st.booleans() | st.text(max_size=3) | st.integers(0, 3).map(lambda n: LONG[n:])
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=9,
)


@given(st.dictionaries(st.text(max_size=3), VALUES))
def test_data_are_the_same_after_packing(page):
    packed = json.loads(packing.to_json(packing.packed(page)))
    assert packing.unpacked(packed) == page


def test_packed_data_must_be_in_json():
    with pytest.raises(ValueError, match="JSON"):
        packing.to_json(packing.packed({"number": [float("inf")]}))
