"""The ways to rotate, few samples: compared with the formula, not timed where they are wrong."""

import pytest
import torch

from benchmarks import rotation

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("few_others")]

TINY = ("tiny", "float32", False, 1, 0.0, False)


def test_ways_to_rotate_are_ratios_to_a_copy():
    table = rotation.time_rotation(*TINY)
    names = [row.name for row in table.rows]
    assert {"a copy", "transformers", "posenc half: halves"} <= {*names}
    copy = table.row("a copy")
    for row in table.rows:
        assert row.ratio == pytest.approx(row.times.median / copy.times.median)
        assert row.error is None if row.name == "a copy" else row.error < 1e-5
    assert [row.ratio for row in table.rows] == sorted(row.ratio for row in table.rows)
    what = [target.what for target in table.targets]
    assert "posenc interleaved: complex / transformers" in what


@pytest.mark.parametrize("backward", [False, True])
def test_numba_has_a_table_of_its_own(backward):
    table = rotation.time_numba("tiny", "float32", backward, 1, 0.0)
    assert [row.name for row in table.rows] == ["a copy", "posenc half: halves"]
    assert table.skipped == {"posenc half: numba": "not installed (numba)"}
    q = torch.empty(1, 2, 4096, 128)
    assert {"posenc half: halves"} == {
        name for name in rotation.candidates(q, q, False)[0] if name.startswith("posenc half")
    }


def test_busy_cores_are_timed_with_all_threads_and_left_quiet(monkeypatch):
    threads, begun, popen = torch.get_num_threads(), [], rotation.subprocess.Popen
    monkeypatch.setitem(rotation.CASES, "long", rotation.CASES["tiny"])
    monkeypatch.setattr(
        rotation.subprocess, "Popen", lambda words: begun.append(popen(words)) or begun[-1]
    )
    table = rotation.time_beside_load("bfloat16", 1, 0.0)
    assert {row.name for row in table.rows} >= {"a copy", "posenc half: halves", "transformers"}
    assert [target.most for target in table.targets] == [1.0]
    assert table.threads == (rotation.os.cpu_count() or 1)
    assert torch.get_num_threads() == threads
    assert len(begun) == 2
    assert all(process.returncode is not None for process in begun)


def test_a_rotation_that_is_wrong_is_not_timed(monkeypatch):
    wrong = lambda x, by, layout, start=None: x * 1.001  # noqa: E731
    monkeypatch.setattr("benchmarks.rotation.rotate", wrong)
    with pytest.raises(AssertionError, match="not close"):
        rotation.time_rotation(*TINY)


def test_other_libraries_that_are_missing_are_named(monkeypatch):
    def missing(pos, dim, dtype):
        raise ImportError(name="some_library")

    missing.__name__ = "_some_library"
    monkeypatch.setattr("benchmarks.rotation.LIBRARIES", (missing,))
    table = rotation.time_rotation(*TINY)
    assert table.skipped == {"some-library": "not installed (some_library)"}
    assert not table.targets  # nobody to compare with
