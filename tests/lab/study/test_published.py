"""Published curves against the catalogue, and against sentences of the papers."""

from posenc.catalog import find
from posenc.lab.study import tasks
from posenc.lab.study.published import PUBLISHED, published


def test_published_tables_name_encodings_of_the_catalogue_and_their_source():
    for one in PUBLISHED:
        assert one.arxiv in ("2305.19466", "2108.12409")
        assert [find(name).slug for name in one.curves] == [*one.curves]
        assert all(point.length >= one.trained for curve in one.curves.values() for point in curve)
    assert published("sort") is None


def test_each_is_of_a_task_that_can_be_studied():
    assert {one.task for one in PUBLISHED} <= {*tasks.TASKS, *tasks.MADE_OF}


def test_curves_fall_as_the_papers_say():
    """NoPE, T5 and ALiBi copy beyond 20, RoPE does not; ALiBi alone reads 3,512 as well as 512."""
    at = {
        (one.task, name): {point.length: point.value for point in curve}
        for one in PUBLISHED
        for name, curve in one.curves.items()
    }
    for name in ("nope", "t5", "alibi"):
        assert at["copy", name][24] > 70 > at["copy", "rope"][24] == 0
    worse = {
        name: at["language", name][3512] / at["language", name][512]
        for name in ("sinusoidal", "rope", "t5", "alibi")
    }
    assert worse["alibi"] < 1 < worse["t5"] < worse["rope"] < worse["sinusoidal"]
