"""How far a long command is."""

from posenc.commands import progress


def test_lines_of_progress_say_how_many_of_how_many_and_the_time_left(monkeypatch, capsys):
    clock = iter([0.0, 5.0, 20.0, 25.0])
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(clock))
    say = progress.line_every(10.0)
    say("RoPE", 1, 40)
    say("ALiBi", 4, 40)
    say("T5", 5, 40)
    assert capsys.readouterr().err == "4 of 40: ALiBi, about 3 min left\n"


def test_who_estimates_the_time_left_is_not_contradicted(monkeypatch, capsys):
    """A study knows the pace of each kind of cell: it says one time, and this says none."""
    clock = iter([0.0, 20.0])
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(clock))
    progress.line_every(10.0, left=False)("copy rope 1; 6 min left", 4, 40)
    assert capsys.readouterr().err == "4 of 40: copy rope 1; 6 min left\n"


def test_one_thing_to_do_is_not_counted(monkeypatch, capsys):
    clock = iter([0.0, 20.0])
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(clock))
    progress.line_every(10.0)("drawing the page", 0, 1)
    assert capsys.readouterr().err == "drawing the page\n"
