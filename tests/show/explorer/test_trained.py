"""What the page has of trained models, against the stores of the studies and their hypotheses."""

from pathlib import Path

import pytest

from posenc.show.explorer import trained

STUDIES = Path(__file__).parents[3] / "studies"


@pytest.mark.repository
def test_what_is_packaged_of_studies_is_what_their_stores_hold():
    """If not: `python tools/explorer.py`."""
    assert trained.short() == trained.measured(STUDIES)


def test_each_length_from_the_trained_one_on_has_a_number_for_each_seed():
    outcomes = trained.short()
    for row in outcomes["rows"]:
        assert min(map(int, row["curve"])) == outcomes["trained"]
        assert {len(seeds) for seeds in row["curve"].values()} == {outcomes["seeds"]}
