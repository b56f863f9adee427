"""What the page has of trained models, against the stores of the studies and their hypotheses."""

from pathlib import Path

import pytest

from posenc.show.explorer import trained

STUDIES = Path(__file__).parents[3] / "studies"


@pytest.mark.repository
def test_what_is_packaged_of_studies_is_what_their_stores_hold():
    """If not: `python tools/explorer.py studies`."""
    assert trained.short() == trained.measured(STUDIES)


def test_each_length_from_the_trained_one_on_has_a_number_for_each_seed():
    for outcomes in (trained.short()["copied"], trained.short()["read"]):
        for row in outcomes["rows"]:
            assert min(map(int, row["curve"])) == outcomes["trained"]
            for curve in (row["curve"], row["cropped"] or {}):
                assert {len(seeds) for seeds in curve.values()} <= {outcomes["seeds"]}
