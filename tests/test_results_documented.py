"""docs/results.md against what is written: every key, and the number of each schema."""

import json
import re
from dataclasses import fields
from pathlib import Path

from posenc.lab.compare import comparison
from posenc.models import inspection
from posenc.models.inspection import inspect
from posenc.support.provenance import Provenance

DOCUMENT = (Path(__file__).parent.parent / "docs/results.md").read_text("utf-8")
SECTIONS = {
    part.split(None, 1)[0].rstrip(","): part for part in DOCUMENT.split("\n## ")[1:]
}  # by the command


def named(text):
    return {*re.findall(r"`([a-z_]+)`", text)}


def test_a_comparison_is_documented(everything):
    tree = everything.to_json()
    said = named(SECTIONS["compare"])
    assert {*tree} | {*tree["encodings"][0]} | {*tree["settings"]} <= said
    for inner in ("curve", "cost", "shuffle"):
        assert {*tree["encodings"][0][inner]} <= said
    assert {*tree["encodings"][0]["far"][0]} <= said
    assert {*tree["encodings"][0]["properties"]["bounded"]} <= said


def test_an_inspection_is_documented(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "llama"}))
    tree = inspect(tmp_path, 9).to_json()
    assert {*tree} <= named(SECTIONS["inspect"])
    assert {*tree["alike"][0]} <= named(SECTIONS["inspect"])
    assert tree["schema"] == inspection.SCHEMA


def test_provenance_is_documented():
    assert {field.name for field in fields(Provenance)} <= named(DOCUMENT.split("\n## ")[0])


def test_the_schemas_are_those_of_the_code():
    numbers = {"compare": comparison.SCHEMA, "report": comparison.SCHEMA}
    numbers |= {"inspect": inspection.SCHEMA}
    for command, number in numbers.items():
        assert SECTIONS[command].startswith(f"{command}, schema {number}\n")
