"""The folder of a report: swapped in whole or not at all, and never at the cost of other files.

Held against the files themselves: what a folder holds before and after, wherever a run is stopped.
"""

import errno
import json
import os
import signal

import pytest
from refusals import refused

from posenc.show.report import output_folder
from posenc.show.report.output_folder import FIGURE_MARK, MARK, replacing, reserve


def write(out, run, *figures):
    """Write a report whose files name the run that made them."""
    with replacing(out) as new:
        if figures:
            (new / "figures").mkdir()
        for name in figures:
            (new / "figures" / name).write_text(f"{FIGURE_MARK} {run}")
        numbers = {"run": run, "provenance": {"versions": {"posenc": "0"}}, "figures": figures}
        (new / "results.json").write_text(json.dumps(numbers))
        (new / "index.html").write_text(f"<html>{MARK} {run}")


def held(out):
    """Return every file below a folder with its text, and links with their targets."""
    return {
        str(path.relative_to(out)): os.readlink(path) if path.is_symlink() else path.read_text()
        for path in sorted(out.rglob("*"))
        if path.is_symlink() or path.is_file()
    }


def whole(out):
    """The run that a page, its numbers and its figures are of; None where there is no page."""
    if not (out / "index.html").exists():
        return None
    run = (out / "index.html").read_text().split()[-1]
    numbers = json.loads((out / "results.json").read_text())
    figures = sorted(os.listdir(out / "figures")) if (out / "figures").exists() else []
    assert numbers["run"] == run
    assert numbers["figures"] == figures
    assert all((out / "figures" / name).read_text().endswith(run) for name in figures)
    return run


def test_a_report_takes_the_place_of_an_earlier_one_with_its_figures(tmp_path):
    for run, figures in (("1", ["a.svg", "b.svg"]), ("2", ["b.svg", "c.svg"]), ("3", [])):
        reserve(tmp_path)
        write(tmp_path, run, *figures)
        assert whole(tmp_path) == run
        assert not [name for name in os.listdir(tmp_path) if name.startswith(".")]


class Killed(BaseException):
    """Nothing that is written to catch errors catches it."""


@pytest.mark.parametrize("kind", [Killed, KeyboardInterrupt, OSError(errno.ENOSPC, "disk full")])
def test_an_error_at_any_step_leaves_the_earlier_report_as_it_was(tmp_path, monkeypatch, kind):
    """Each call that moves or writes fails in its turn, until one run goes through."""
    write(tmp_path, "old", "a.svg", "b.svg")
    before = held(tmp_path)
    for step in range(40):
        with monkeypatch.context() as patched:
            count = failing(patched, step, kind)
            try:
                write(tmp_path, "new", "b.svg", "c.svg")
                break
            except (Killed, KeyboardInterrupt, OSError):
                assert count() >= step
        assert held(tmp_path) == before
        reserve(tmp_path)
    assert step > 8
    assert whole(tmp_path) == "new"


def failing(patched, step, kind):
    """Make the call of this number that changes files fail, and that one alone."""
    calls = 0

    def wrap(name):
        real = getattr(os, name)

        def call(*args, **kwargs):
            nonlocal calls
            calls += 1
            if calls == step + 1:
                raise kind() if callable(kind) else kind
            return real(*args, **kwargs)

        patched.setattr(os, name, call)

    for name in ("rename", "fsync", "mkdir"):
        wrap(name)
    return lambda: calls


def killed(step, out):
    """Write a report in a process that is killed at a step; 0 where it comes to the end."""
    child = os.fork()
    if not child:
        failing(pytest.MonkeyPatch(), step - 1, lambda: os.kill(os.getpid(), signal.SIGKILL))
        write(out, "new", "b.svg", "c.svg")
        os._exit(0)
    return os.waitpid(child, 0)[1]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="kills a process")
def test_wherever_a_run_is_killed_no_page_stands_beside_numbers_of_another(tmp_path):
    """A SIGKILL at each step in turn; the next run works in spite of leftovers."""
    seen, step, code = set(), 0, -9
    while code:
        out = tmp_path / str(step)
        out.mkdir()
        write(out, "old", "a.svg", "b.svg")
        step += 1
        code = killed(step, out)
        seen.add(whole(out))
        reserve(out)
        write(out, "next")
        assert whole(out) == "next"
        assert not [name for name in os.listdir(out) if name.startswith(".")]
    assert step > 8
    assert seen == {"old", None, "new"}


def test_what_an_interruption_finds_half_moved_is_moved_to_the_end(tmp_path, monkeypatch):
    write(tmp_path, "old")
    real = os.rename
    signal.signal(signal.SIGINT, signal.default_int_handler)  # in the background it is ignored

    def rename(*args):
        real(*args)
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(os, "rename", rename)
    with pytest.raises(KeyboardInterrupt):
        write(tmp_path, "new")
    assert whole(tmp_path) == "new"


def test_two_runs_do_not_write_into_one_folder(tmp_path):
    with replacing(tmp_path) as new:
        for name in (output_folder.NUMBERS, output_folder.PAGE):
            (new / name).write_text("1")
        with pytest.raises(OSError, match="writing a report"):
            write(tmp_path, "2")


HOSTILE = {"provenance": {"versions": {"posenc": "0"}}}


@pytest.mark.parametrize("names", [["a.svg"], ["../rep/a.svg", "a.svg"], ["a.svg"] * 100_000])
def test_nothing_is_taken_away_through_a_link(tmp_path, names):
    """A results.json made by somebody else lists what lies where `figures` leads."""
    mine, out = tmp_path / "mine", tmp_path / "rep"
    mine.mkdir()
    out.mkdir()
    (mine / "a.svg").write_text(f"my own, {FIGURE_MARK}")
    (out / "figures").symlink_to(mine)
    (out / "results.json").write_text(json.dumps(HOSTILE | {"figures": names}))
    with pytest.raises(OSError, match="holds figures, which is not an earlier report"):
        reserve(out)
    reserve(out, force=True)
    write(out, "1")
    assert held(mine) == {"a.svg": f"my own, {FIGURE_MARK}"}
    assert (out / "figures").is_symlink()
    with pytest.raises(OSError, match="figures is a link or a file"):
        write(out, "2", "a.svg")
    assert whole_without_figures(out) == "1"
    assert held(mine) == {"a.svg": f"my own, {FIGURE_MARK}"}


def whole_without_figures(out):
    return json.loads((out / "results.json").read_text())["run"]


@pytest.mark.parametrize(
    "names", [["thesis.svg"], ["../thesis.svg"], ["/etc/hostname"], [""], ["."], [".."], [[]], [{}]]
)
def test_files_are_no_figures_of_a_report_because_a_list_says_so(tmp_path, names):
    (tmp_path / "figures").mkdir()
    for place in ("figures/thesis.svg", "thesis.svg"):
        (tmp_path / place).write_text("years of work")
    (tmp_path / "results.json").write_text(json.dumps(HOSTILE | {"figures": names}))
    with pytest.raises(OSError, match="which is not an earlier report"):
        reserve(tmp_path)
    write(tmp_path, "1", "mine.svg")
    write(tmp_path, "2")
    assert (tmp_path / "figures" / "thesis.svg").read_text() == "years of work"
    assert (tmp_path / "thesis.svg").read_text() == "years of work"
    assert not (tmp_path / "figures" / "mine.svg").exists()


@pytest.mark.parametrize("name", ["index.html", "results.json", ".posenc-x"])
def test_a_link_is_no_earlier_report_and_what_it_leads_to_stays(tmp_path, name):
    out, mine = tmp_path / "rep", tmp_path / "mine"
    out.mkdir()
    write(tmp_path, "mine")
    mine.mkdir()
    (mine / "work").write_text("years")
    (out / name).symlink_to(mine if name.startswith(".") else tmp_path / name)
    before = held(tmp_path)
    with refused(OSError, name):
        reserve(out)
    assert held(tmp_path) == before
    reserve(out, force=True)
    write(out, "1")
    assert whole(out) == "1"
    assert whole(tmp_path) == "mine"
    assert (mine / "work").read_text() == "years"


def test_leftovers_lose_their_links_and_not_what_those_lead_to(tmp_path):
    out, mine = tmp_path / "rep", tmp_path / "mine"
    (out / ".posenc-left" / "figures").mkdir(parents=True)
    mine.mkdir()
    (mine / "work").write_text("years")
    (out / ".posenc-left" / "figures" / "a").symlink_to(mine)
    (out / ".posenc-left" / "b").symlink_to(mine / "work")
    reserve(out)
    write(out, "1")
    assert sorted(os.listdir(out)) == ["index.html", "results.json"]
    assert (mine / "work").read_text() == "years"


@pytest.mark.parametrize("name", ["index.html", "results.json"])
@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="makes a FIFO")
def test_a_pipe_in_the_place_of_a_file_is_not_waited_for(tmp_path, name):
    os.mkfifo(tmp_path / name)
    with refused(OSError, name):
        reserve(tmp_path)


@pytest.mark.parametrize(
    "text",
    ["[" * 100_000, '{"a":' * 100_000, "null", "[1]", '{"provenance": 3}', "\xff", "9" * 5000, ""],
)
def test_numbers_that_are_none_of_ours_are_foreign_however_odd(tmp_path, text):
    (tmp_path / "results.json").write_text(text)
    with refused(OSError, "results.json"):
        reserve(tmp_path)


@pytest.mark.parametrize("name", ["index.html", "results.json"])
def test_a_folder_in_the_place_of_a_file_is_said_before_the_work(tmp_path, name):
    (tmp_path / name).mkdir()
    with refused(OSError, name):
        reserve(tmp_path, force=True)


def test_the_place_is_tried_without_touching_what_a_link_leads_to(tmp_path):
    out = tmp_path / "rep"
    out.mkdir()
    (out / ".index.html.tmp").symlink_to(tmp_path / "new")
    reserve(out, force=True)
    assert (out / ".index.html.tmp").is_symlink()
    assert not (tmp_path / "new").exists()


def test_names_of_strange_files_are_safe_to_print(tmp_path):
    (tmp_path / "\x1b[31m\n").write_text("")
    with pytest.raises(OSError, match=r"holds \\x1b\[31m\\n, which"):
        reserve(tmp_path)


@pytest.mark.parametrize("kind", ["svg", "png", "pdf"])
def test_a_figure_says_what_made_it(tmp_path, kind):
    from posenc.show.report.drawing import matplotlib
    from posenc.show.report.drawing.figure import Figure, Panel
    from posenc.show.report.drawing.marks import Line

    figure = Figure("A title", [Panel("", [Line([0, 1], [1, 2])])], "what it says " * 150)
    matplotlib.save(figure, tmp_path / f"one.{kind}")
    assert output_folder.has_mark(tmp_path / f"one.{kind}", FIGURE_MARK)


def test_beside_other_files_only_what_it_would_replace_must_be_of_a_report(tmp_path):
    (tmp_path / "results.db").write_text("a study")
    with refused(FileExistsError, "results.db", "--force"):
        reserve(tmp_path)
    reserve(tmp_path, beside=True)
    write(tmp_path, "a")
    reserve(tmp_path, beside=True)
    (tmp_path / "results.json").write_text("mine")
    with refused(FileExistsError, "results.json"):
        reserve(tmp_path, beside=True)
    assert held(tmp_path)["results.db"] == "a study"
