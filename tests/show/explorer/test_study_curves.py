"""The packaged outcomes of trained models, against the stores of the studies."""

from pathlib import Path

import pytest

from posenc.show.explorer import study_curves

STUDIES = Path(__file__).parents[3] / "studies"


@pytest.mark.repository
def test_what_is_packaged_of_studies_is_what_their_stores_hold():
    """Run `python tools/explorer.py` if this fails."""
    assert study_curves.short() == study_curves.measured(STUDIES)


def test_each_length_from_the_trained_one_on_has_a_number_for_each_seed():
    outcomes = study_curves.short()
    for row in outcomes["rows"]:
        assert min(map(int, row["curve"])) == outcomes["trained"]
        assert {len(seeds) for seeds in row["curve"].values()} == {outcomes["seeds"]}
