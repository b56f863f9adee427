"""Start-up by a clock that is made up: no Python is started."""

import pytest

from benchmarks import startup


@pytest.fixture
def commands(monkeypatch):
    """The commands that would be run; seconds pass as if each module took some to import."""
    run, now = [], [0.0]

    def pretend(words):
        run.append(words)
        now[0] += 1.0 + 0.05 * ("posenc" in words[-1]) + 2.0 * ("transformers" in words[-1])

    monkeypatch.setattr(startup, "_run", pretend)
    monkeypatch.setattr("benchmarks.timing.time.perf_counter", lambda: now[0])
    monkeypatch.setattr("benchmarks.timing._waited", lambda: 0.0)
    return run


def test_the_target_is_what_posenc_takes_on_top_of_torch(commands):
    table = startup.time_start_up(3, 60.0)
    (target,) = table.targets
    assert (target.found, target.most, target.met) == (pytest.approx(0.05), 0.1, True)
    assert table.row("transformers, Llama").ratio == pytest.approx(3.0)


def test_without_peers_only_torch_and_posenc_are_started(commands):
    table = startup.time_start_up(3, 60.0, peers=False)
    assert {row.name for row in table.rows} == {
        "torch alone", "posenc and attend", "posenc, every public name", "posenc --help",
        "posenc list",
    }  # fmt: skip
    assert not any("transformers" in word for words in commands for word in words)


def test_a_peer_that_is_not_installed_is_named(commands, monkeypatch):
    monkeypatch.setitem(startup.IMPORTS, "another", ("no_such_library", "import no_such_library"))
    assert startup.time_start_up(3, 60.0).skipped["another"] == "not installed"
