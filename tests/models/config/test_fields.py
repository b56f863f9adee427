"""Against what JSON can hold: each reader takes its own type, and refuses every other in a line."""

import pytest

from posenc.models.config.fields import Fields, head_dim
from posenc.models.files.errors import ModelError, Unread

VALUES = [True, 3, 2.5, 4096.0, "3", [1], ["a"], [1.5], {"a": 1}, -1, 0, 2**60, float("nan")]
TAKEN = {
    "count": [3, 4096.0],
    "number": [3, 2.5, 4096.0],
    "flag": [True],
    "counts": [[1]],
    "words": [["a"]],
    "object": [{"a": 1}],
}


@pytest.mark.parametrize("reader", TAKEN)
@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_each_reader_takes_its_own_type(reader, value):
    fields = Fields({"key": value}, "a.json")
    if any(value is taken or repr(value) == repr(taken) for taken in TAKEN[reader]):
        assert getattr(fields, reader)("key") is not None
    else:
        with pytest.raises(ModelError, match=r"^a\.json:key(\[0\])?: must be "):
            getattr(fields, reader)("key")


@pytest.mark.parametrize("reader", TAKEN)
def test_null_is_as_if_the_key_were_not_there(reader):
    assert getattr(Fields({"key": None}, "a.json"), reader)("key") is None
    assert getattr(Fields({}, "a.json"), reader)("key") is None


def test_a_key_is_read_by_either_name_and_both_must_agree():
    names = {"num_hidden_layers": "n_layer"}
    for key in ("num_hidden_layers", "n_layer"):
        assert Fields({key: 3}, "a.json", names=names).count("num_hidden_layers") == 3
    both = Fields({"n_layer": 3, "num_hidden_layers": 4}, "a.json", "text", names)
    with pytest.raises(ModelError, match=r"text\.n_layer and text\.num_hidden_layers: disagree: 3"):
        both.count("num_hidden_layers")


def test_a_default_counts_where_the_file_is_silent_but_not_where_it_says_null():
    assert Fields({}, "a.json", defaults={"key": 3}).value("key") == 3
    assert Fields({"key": None}, "a.json", defaults={"key": 3}).value("key") is None


def test_keys_that_were_not_read_are_named():
    fields = Fields({"a": 1, "b": 2, "c": None}, "a.json")
    fields.count("a")
    assert [*fields.unread()] == ["b"]
    with pytest.raises(ModelError, match=r"b: means nothing to it, got 2, allowed: a, c"):
        fields.refuse_others(("a", "c"), "it")
    with pytest.raises(
        ModelError, match=r"factr: means nothing to yarn; did you mean factor\?, got"
    ):
        Fields({"factr": 2}, "a.json").refuse_others(("factor",), "yarn")


def test_a_sound_model_is_refused_as_unread():
    with pytest.raises(Unread, match=r"a\.json:key: posenc does not read x: why"):
        Fields({}, "a.json").refuse("key", "x", "why")


@pytest.mark.parametrize(
    ("values", "channels"),
    [
        ({"head_dim": 3}, 3),
        ({"hidden_size": 12, "num_attention_heads": 4}, 3),
        ({"hidden_size": 13, "num_attention_heads": 4}, "must be a multiple of the 4 heads"),
        ({"hidden_size": 12}, "is missing, and so is hidden_size or num_attention_heads"),
    ],
)
def test_a_head_is_as_wide_as_given_or_an_even_share(values, channels):
    fields = Fields(values, "a.json")
    if isinstance(channels, int):
        assert head_dim(fields) == channels
    else:
        with pytest.raises(ModelError, match=channels):
            head_dim(fields)
