"""The baselines of `posenc arena --quick` are those of the stored study."""

import json
from dataclasses import replace

import pytest
from refusals import refused

from posenc.lab.arena import quick
from posenc.lab.study.plan import PlanError
from studies.arena import first_look


@pytest.mark.repository
def test_packaged_baselines_equal_the_store():
    """`python -m studies.arena.first_look` writes them."""
    assert json.loads(quick.STORED.read_text("utf-8")) == first_look.measured()


@pytest.mark.repository
def test_a_study_without_cells_has_no_baselines(monkeypatch):
    contents = first_look.store.read(first_look.STUDY)
    monkeypatch.setattr(first_look.store, "read", lambda folder: replace(contents, records={}))
    with refused(PlanError, "content-or-place-10"):
        first_look.measured()
