"""What a run takes of many like cases, counted by hand."""

from pathlib import Path
from types import SimpleNamespace

from thorough import FIRST, quick, slow_first


def test_a_quick_run_takes_all_cases_of_tests_that_have_few():
    tests = {f"few[{n}]": "few" for n in range(19)} | {"alone": "alone"}
    assert quick(tests) == [*tests]


def test_a_quick_run_takes_each_fifth_of_many_like_cases():
    kept = quick({n: "many" for n in range(52)})
    assert kept == [*range(kept[0], 52, 5)]
    assert kept[0] < 5


def test_a_card_that_one_test_leaves_out_is_in_another():
    cases = {(test, card): f"test_{test}" for test in range(40) for card in range(50)}
    assert {card for _, card in quick(cases)} == {*range(50)}


def collected(file, slow, tests):
    one = {"path": Path("tests") / file, "slow": slow}
    return [SimpleNamespace(nodeid=f"{file}::{n}", **one) for n in range(tests)]


TESTS = [
    *(collected("a/test_a.py", True, 2) + collected("a/test_b.py", False, 30)),
    *(collected("b/test_a.py", True, 1) + collected("a/test_c.py", True, 1)),
    *(collected("c/test_a.py", True, 3) + collected(FIRST, True, 3)),
]


def named(tests):
    return [test.nodeid for test in tests]


def test_one_worker_begins_with_the_slowest_and_leaves_nothing_out():
    order = slow_first(TESTS, lambda test: test.slow, 1)
    assert sorted(named(order)) == sorted(named(TESTS))
    assert {test.path.name for test in order[:3]} == {FIRST}
    assert [test.slow for test in order] == [True] * 10 + [False] * 30


def test_each_of_two_workers_begins_with_slow_tests_and_a_room_stays_together():
    order = slow_first(TESTS, lambda test: test.slow, 2)
    assert sorted(named(order)) == sorted(named(TESTS))
    shares = order[:20], order[20:]
    slow = [[test.nodeid for test in share if test.slow] for share in shares]
    assert slow == [
        [test.nodeid for test in share[: len(of)]] for share, of in zip(shares, slow, strict=True)
    ]
    assert slow[0] == [f"{FIRST}::0", f"{FIRST}::2", "b/test_a.py::0"]
    assert slow[1][:2] == [f"{FIRST}::1", "a/test_a.py::0"]
    assert slow[1][2:] == [
        "a/test_a.py::1",
        "a/test_c.py::0",
        *(f"c/test_a.py::{n}" for n in range(3)),
    ]


def test_more_slow_tests_than_a_share_are_run_all_the_same():
    tests = collected("a/test_a.py", True, 9) + collected("b/test_a.py", False, 1)
    order = slow_first(tests, lambda test: test.slow, 4)
    assert sorted(named(order)) == sorted(named(tests))
