"""The task of names that recur, held against its texts alone."""

import importlib.util
from pathlib import Path
from random import Random

import pytest

pytestmark = pytest.mark.repository
FILE = Path(__file__).parents[3] / "studies/names/task.py"


@pytest.fixture(scope="module")
def module():
    found = importlib.util.spec_from_file_location("names_task", FILE)
    made = importlib.util.module_from_spec(found)
    found.loader.exec_module(made)
    return made


@pytest.mark.parametrize("n", [16, 40, 64, 128])
@pytest.mark.parametrize("held_out", [False, True])
def test_the_graded_letters_stand_n_letters_before(module, n, held_out):
    write = module.writer(held_out)
    for seed in range(50):
        letters, graded = write(n, Random(seed))[:2]
        places = [place for place, yes in enumerate(graded) if yes]
        assert places == [*range(places[0], places[0] + 5)]
        assert [letters[place - n] for place in places] == [letters[place] for place in places]
        assert letters[places[0] - 1 - n] == letters[places[0] - 1]


def test_the_other_name_has_another_initial_and_either_comes_first(module):
    firsts = set()
    for seed in range(50):
        letters = module.writer(False)(40, Random(seed)).symbols
        one, other = "".join(letters[:6]), "".join(letters[7:13])
        assert one[0] != other[0]
        firsts.add("".join(letters).rindex(one) > 13)
    assert firsts == {True, False}


def test_texts_of_training_are_not_those_of_tests(module):
    """Texts for tests come from the last tenth of the novel only."""
    tail, head = module.TEXT[module.HELD_OUT :], module.TEXT[: module.HELD_OUT]
    for seed in range(20):
        tested = "".join(module.writer(True)(64, Random(seed)).symbols)[14:62]
        trained = "".join(module.writer(False)(64, Random(seed)).symbols)[14:62]
        assert tested in tail
        assert trained in head
