"""Digests of cells, compared with a SHA-256 of settings written by hand, and invalid settings."""

from dataclasses import fields, replace
from hashlib import sha256

import pytest
from refusals import refused

from posenc.lab.study.cell import Cell, Profile

CELL = Cell("copy", "rope", 3, options={"base": 500.0}, trained=10, tested=(10, 20))
WRITTEN = (
    '{"control":"","data":"","data_seed":null,"encoding":"rope","extend":"","format":1,'
    '"options":{"base":500.0},"positions":"plain","profile":{"batch":64,"heads":4,"layers":2,'
    '"prompts":200,"rate":0.001,"steps":800,"warmup":100,"width":64},"seed":3,"task":"copy",'
    '"tested":[10,20],"trained":10}'
)


def test_it_is_named_by_the_hash_of_its_settings():
    assert CELL.digest == sha256(WRITTEN.encode()).hexdigest()[:16]


OTHER = {
    "task": "sort", "encoding": "alibi", "seed": 4, "options": {"base": 600.0},
    "profile": Profile(steps=801), "trained": 11, "tested": (10, 21), "positions": "random 64",
    "control": "window", "extend": "yarn 2", "data_seed": 1, "data": "ab",
    "precision": "bfloat16",
}  # fmt: skip


@pytest.mark.parametrize("field", [x.name for x in fields(Cell)])
def test_each_setting_changes_the_name_but_what_changes_no_number(field):
    other = replace(CELL, **{field: OTHER.get(field, "mine")})
    assert (other.digest == CELL.digest) == (field in ("label", "source"))


@pytest.mark.parametrize("field", [x.name for x in fields(Profile)])
def test_each_size_changes_the_name(field):
    profile = replace(CELL.profile, **{field: 7})
    assert replace(CELL, profile=profile).digest != CELL.digest


def test_settings_make_the_cell_again():
    assert Cell.of(CELL.settings) == CELL
    rounded = replace(CELL, precision="bfloat16")
    assert Cell.of(rounded.settings) == rounded
    labelled = Cell.of(CELL.settings, "mine", "war.txt")
    assert (labelled.name, labelled.digest) == ("mine", CELL.digest)


@pytest.mark.parametrize(
    ("change", "named"), [({"format": 2}, "format 2"), ({"speed": 3, "colour": 1}, "colour, speed")]
)
def test_settings_of_another_version_are_refused(change, named):
    with refused(ValueError, 1, named):
        Cell.of(CELL.settings | change)


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("precision", "float16", ["`precision`", "'float32'", "'bfloat16'", "'float16'"]),
        ("control", "mirror", ["`control`", "''", "'window'"]),
        ("positions", "random 0", ["`positions`", '"plain"', '"random 2048"']),
        ("positions", "random", ["`positions`", '"plain"']),
        ("extend", "yarn", ["`extend`"]),
        ("extend", "yarn 2 after 0", ["`extend`"]),
    ],
)
def test_what_means_nothing_is_refused(field, value, said):
    with refused(ValueError, *said):
        replace(CELL, **{field: value})


def test_random_positions_have_a_bound():
    assert CELL.drawn_below is None
    assert replace(CELL, positions="random 2048").drawn_below == 2048
