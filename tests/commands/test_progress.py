"""The progress of a long command."""

from posenc.commands import progress


def test_lines_of_progress_say_how_many_of_how_many_and_the_time_left(monkeypatch, capsys):
    clock = iter([0.0, 5.0, 20.0, 25.0])
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(clock))
    say = progress.line_every(10.0)
    say("RoPE", 1, 40)
    say("ALiBi", 4, 40)
    say("T5", 5, 40)
    assert capsys.readouterr().err == "4 of 40: ALiBi, about 3 min left\n"


def test_where_what_is_done_says_the_time_left_it_is_said_once(monkeypatch, capsys):
    """Steps of a study contain their own estimate; a single step is not counted."""
    clock = iter([0.0, 20.0, 40.0])
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(clock))
    say = progress.line_every(10.0, estimate=False)
    say("rope 1/9; 6 min left", 4, 40)
    say("drawing the page", 0, 1)
    assert capsys.readouterr().err == "4 of 40: rope 1/9; 6 min left\ndrawing the page\n"
