"""The packaged outcomes of trained models, against the stores of the studies."""

import runpy
from pathlib import Path

import pytest

from posenc.show.explorer.story import short

TOOL = Path(__file__).parents[3] / "tools/explorer.py"


@pytest.mark.repository
def test_what_is_packaged_of_studies_is_what_their_stores_hold():
    """Run `python tools/explorer.py` if this fails."""
    assert short() == runpy.run_path(str(TOOL))["measured"]()


def test_each_length_from_the_trained_one_on_has_a_number_for_each_seed():
    outcomes = short()
    for row in outcomes["rows"]:
        assert min(map(int, row["curve"])) == outcomes["trained"]
        assert {len(seeds) for seeds in row["curve"].values()} == {outcomes["seeds"]}
