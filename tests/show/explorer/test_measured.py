"""Measurements that are kept against those that are made now."""

import json

import pytest

from posenc.catalog import find
from posenc.properties.card import findings
from posenc.show.explorer import data, measured


def test_what_is_measured_is_kept(monkeypatch, tmp_path):
    monkeypatch.setenv("POSENC_CACHE", str(tmp_path))
    card, bases = find("nope"), [10_000.0]
    assert measured.kept(card, bases) is None
    made = measured.measure(card, bases)
    assert measured.kept(card, bases) == json.loads(data.to_json(made))
    assert measured.kept(card, [500_000.0]) is None
    assert made["properties"] == findings(card)["properties"]
    assert (tmp_path / measured.file_name(card, bases)).is_file()


@pytest.mark.parametrize("slug", ["nope", "rope"])
def test_the_page_has_what_is_measured_now(slug):
    card, bases = find(slug), data.published_bases()
    assert json.loads(data.to_json(measured.measure(card, bases))) == data.catalog()[slug]


def test_an_encoding_that_was_never_measured_is_counted(monkeypatch):
    monkeypatch.setattr(data, "kept", lambda card, bases: None if card.slug == "rope" else {})
    assert data.unmeasured() == 1
