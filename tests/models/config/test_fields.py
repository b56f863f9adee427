"""Test that each reader of keys accepts its own type and rejects every other value of JSON."""

import pytest
from refusals import refused

from posenc.models.config.families import Family
from posenc.models.config.fields import Config, Fields, head_dim
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
        with refused(ModelError, "a.json"):
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
    with refused(ModelError, "n_layer", "num_hidden_layers", 3):
        both.count("num_hidden_layers")


def test_a_default_counts_where_the_file_is_silent_but_not_where_it_says_null():
    assert Fields({}, "a.json", defaults={"key": 3}).value("key") == 3
    assert Fields({"key": None}, "a.json", defaults={"key": 3}).value("key") is None


def test_keys_that_were_not_read_are_named():
    fields = Fields({"a": 1, "b": 2, "c": None}, "a.json")
    fields.count("a")
    assert [*fields.unread()] == ["b"]
    with refused(ModelError, "b", 2):
        fields.refuse_others(("a", "c"), "it")
    with refused(ModelError, "factr"):
        Fields({"factr": 2}, "a.json").refuse_others(("factor",), "yarn")


def test_a_sound_model_is_refused_as_unread():
    with refused(Unread, "a.json"):
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


def config(**values):
    return Config(
        {"num_hidden_layers": 7, **values}, "a.json", "", Family("some", "some", "rotary")
    )


def test_types_of_layers_that_take_turns():
    """Compare with lists written by hand for seven layers."""
    full, sliding = "full_attention", "sliding_attention"
    assert config().every(3) == [sliding, sliding, full, sliding, sliding, full, sliding]
    assert config().every(3, "a", "b", at=0) == ["a", "b", "b", "a", "b", "b", "a"]
    assert config().every(4, "a", "b", at=1) == ["b", "a", "b", "b", "b", "a", "b"]
    assert config().repeated("xyz") == [*"xyzxyzx"]
    assert config(max_window_layers=5, sliding_window=3).by_depth() == [full] * 5 + [sliding] * 2
    unused = config(max_window_layers=5, sliding_window=3, use_sliding_window=False)
    assert unused.by_depth() == [full] * 7


def test_types_that_the_file_lists_count_if_the_class_has_them():
    usual = config().every(2)
    assert config().types(usual) == usual
    assert config(layer_types=["attention"] * 7).types(usual) == ["full_attention"] * 7
    with refused(ModelError, "layer_types", 7):
        config(layer_types=["full_attention"]).types(usual)
    for unknown in ("", "conv"):
        with pytest.raises(ModelError, match="must be layer types of some, got"):
            config(layer_types=[unknown] * 7).types(usual)
    assert config(layer_types=["conv"] * 7).types(usual, ("conv",)) == ["conv"] * 7
    assert config(layer_types=[*"aaaaaaabb"]).types(usual, "a", trimmed=True) == ["a"] * 7
    assert config(layer_types=["a"] * 7).types(usual, ("b",), {"a": "b"}) == ["b"] * 7


def test_a_period_is_not_read_where_the_file_lists_the_types():
    """EXAONE 4 may state the period as letters."""
    letters = config(pattern="LLLG", layer_types=["full_attention"] * 7)
    assert (letters.period("pattern", 4), config(pattern=5).period("pattern", 4)) == (4, 5)
    with refused(ModelError, "pattern"):
        config(pattern="LLLG").period("pattern", 4)


def test_a_window_with_its_ends_and_none():
    assert config(sliding_window=8).window() == 8
    assert config(sliding_window=8).window(ends=1) == 9
    assert config(sliding_window=8, use_sliding_window=False).window(ends=1) is None
    assert config().window(ends=1) is None


def test_a_key_with_a_value_that_nothing_reads_is_refused():
    config(offset=4).require("offset", 4)
    config(offset=None).require("offset", 4)
    with refused(Unread, 3, 4):
        config(offset=3).require("offset", 4)
    assert config(fixed=True).without_constants(fixed=True) == {"num_hidden_layers": 7}
    with refused(Unread, "True"):
        config(fixed=False).without_constants(fixed=True)
