"""Test strict JSON against Python's json on valid documents."""

import json
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import refused

from posenc.models.files.errors import ModelError
from posenc.models.files.strict import parse_json, read_json


def test_a_pipe_is_refused_without_waiting_for_a_writer(tmp_path):
    config = tmp_path / "config.json"
    os.mkfifo(config)
    with refused(ModelError, "config.json"):
        read_json(config)


def test_json_within_the_limits_is_read(tmp_path):
    config = tmp_path / "config.json"
    deep = json.loads('{"a":' * 64 + "1" + "}" * 64)
    whole = {"a": 2**53, "b": -(2**53), "c": 1e308, "d": "\U0001f600 \u202e", "e": [None, True]}
    for value in ({}, deep, whole):
        config.write_text(json.dumps(value))
        assert read_json(config) == value
    config.write_text('{"a": "' + "x" * (2**20 - 9) + '"}')
    assert len(read_json(config)["a"]) == 2**20 - 9
    config.write_text('{"a": "' + "x" * (2**20 - 8) + '"}')
    with pytest.raises(ModelError, match="too large"):
        read_json(config)
    assert read_json(config, most=2**21)


plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=6,
)


@pytest.mark.slow
@settings(max_examples=200, derandomize=True, deadline=None)
@given(st.dictionaries(st.text(), plain, max_size=3), st.booleans())
def test_what_json_writes_is_read_back(value, escaped):
    raw = json.dumps(value, ensure_ascii=escaped).encode()
    assert parse_json(raw, Path("a.json")) == value


@settings(max_examples=200, derandomize=True, deadline=None)
@given(st.binary() | st.text(alphabet='{}[]":,0123456789eE+-.\\ud8NaInfity ').map(str.encode))
def test_any_bytes_are_an_object_or_refused(raw):
    try:
        found = parse_json(raw, Path("a.json"))
    except ModelError:
        return
    assert isinstance(found, dict)
