"""Tables against the numbers that went into the figures."""

from posenc.show.report.drawing.data_table import data_table as listed
from posenc.show.report.drawing.data_table import evenly_spaced
from posenc.show.report.drawing.figure import Figure, FigureNumbers, Panel
from posenc.show.report.drawing.marks import Area, Band, Heat, Line, Points, Rule, Stems


def table(*panels, **options):
    return listed(Figure("", panels, "", **options))


def test_curves_over_the_same_places_stand_side_by_side():
    x = [1, 2, 4096]
    marks = [Line(x, [0.5, None, 0.25], "RoPE"), Band(x, [0, 1, 2], [3, 4, 5], "range")]
    made = table(Panel("", [*marks, Rule(7, "x", "trained: 7")], "tokens", "score"))
    assert made.heading == ["tokens", "RoPE", "range, lower end", "range, upper end"]
    assert made.rows == [["1", "0.5", "0", "3"], ["2", "–", "1", "4"], ["4,096", "0.25", "2", "5"]]
    assert made.note == "trained: 7."


def test_stems_are_listed_and_words_and_polygons_are_not():
    words = Points([0], [9], marker="", labels=["word"])
    made = table(Panel("", [Stems([0, 1], [2, 3], "v"), words, Area([0, 1], [0, 1])], "channel"))
    assert made == FigureNumbers(["channel", "v"], [["0", "2"], ["1", "3"]])


def test_many_curves_are_rows_and_say_their_panel():
    panels = [Panel(f"e{n}", [Line(range(99), range(n, 99 + n))], "p", "score") for n in range(13)]
    made = table(*panels)
    assert made.heading == [
        "p",
        "0",
        "9",
        "18",
        "27",
        "36",
        "45",
        "53",
        "62",
        "71",
        "80",
        "89",
        "98",
    ]
    assert made.rows[12][:3] == ["e12: score", "12", "21"]
    assert made.note == "Picked evenly from 99 places."


def test_names_are_places_also_where_two_are_the_same():
    names = ["dog", "bites", "dog"]
    made = table(Panel("", [Points([0.5, 2, 3], range(3), "time")], "×", y_names=names))
    assert made.rows == [["dog", "0.5"], ["bites", "2"], ["dog", "3"]]
    made = table(Panel("", [Heat([[1, 2, 3]], range(3), [0])], "key", "query", x_names=names))
    assert made.heading == ["query \\ key", "dog", "bites", "dog"]


def test_curves_over_other_places_stand_one_below_the_other():
    made = table(Panel("", [Line([1, 2], [3, 4], "a"), Line([5], [6], "b")], "p", "s"))
    assert made.rows == [["a", "1", "3"], ["a", "2", "4"], ["b", "5", "6"]]


def test_cells_are_picked_evenly_with_both_ends():
    z = [[100 * r + c for c in range(50)] for r in range(30)]
    made = table(Panel("", [Heat(z, range(50), range(30))], "key", "query"))
    assert (len(made.rows), len(made.heading)) == (24, 13)
    assert made.rows[0][:2] == ["0", "0"]
    assert made.rows[-1][-1] == "2,949"
    assert made.note == "Picked evenly from 30 rows and 50 columns."
    assert evenly_spaced(5, 24) == [0, 1, 2, 3, 4]
    assert evenly_spaced(0, 24) == []


def test_of_many_pictures_rows_are_picked_evenly_too():
    panels = [
        Panel(str(n), [Heat([[1] * (3 + n)] * 64, range(3 + n), range(64))]) for n in range(9)
    ]
    made = table(*panels)
    assert len(made.rows) == 240
    assert (made.rows[0][0], made.rows[-1][0]) == ("0: 0", "8: 63")
    assert made.note.startswith("Some of the rows, picked evenly.")


def test_a_table_of_its_own_goes_first():
    panel = Panel("", [Line([1], [2])], "p", "s")
    own = FigureNumbers(["a"], [["b"]])
    assert table(panel, listed=own) is own


def test_every_figure_has_a_table_of_even_rows(drawn):
    for name, figure in drawn.items():
        made = listed(figure)
        assert 1 < len(made.heading) <= 16, name
        assert 0 < len(made.rows) <= 260, name
        assert {len(row) for row in made.rows} == {len(made.heading)}, name
        assert not any("nan" in cell or "inf" in cell for row in made.rows for cell in row), name
