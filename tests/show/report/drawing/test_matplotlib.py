"""Files read back, and the boxes of their text: nothing cut off, nothing on top of each other."""

import subprocess
import sys
from itertools import combinations

import pytest

from posenc.show.report.drawing import matplotlib
from posenc.show.report.drawing.figure import Figure, Panel
from posenc.show.report.drawing.marks import Area, Heat, Line, Points, Stems

pytestmark = pytest.mark.slow  # each draws with matplotlib and measures the places of words

EVIL = "$\\frac{<b>&\u202e\x00 犬 𝕏"


@pytest.mark.parametrize(
    ("suffix", "begins"), [(".png", b"\x89PNG\r\n"), (".svg", b"<?xml"), (".pdf", b"%PDF")]
)
def test_the_suffix_says_the_format_and_twice_is_the_same(suffix, begins, tmp_path, drawn):
    files = [tmp_path / f"{n}{suffix}" for n in range(2)]
    for file in files:
        matplotlib.save(drawn["shift"], file)
    first, second = (file.read_bytes() for file in files)
    assert first.startswith(begins)
    assert first == second
    assert b"One matrix moves every position" in first or suffix == ".pdf"


def test_text_is_shown_as_it_is_written(tmp_path):
    panel = Panel(EVIL, [Line([0, 1], [0, 1], EVIL)], EVIL, EVIL, x_names=[EVIL, EVIL])
    heat = Panel(EVIL, [Heat([[1.0]], [0], [0], unit=EVIL)])
    figure = Figure(EVIL, [panel, heat], EVIL)
    for suffix in (".png", ".svg", ".pdf"):
        matplotlib.save(figure, tmp_path / f"evil{suffix}")
    titles = [ax.get_title() for ax in matplotlib.to_matplotlib(figure).axes]
    assert titles[0].startswith("$\\frac{<b>&\\u202e\\x00 犬")


def test_stems_polygons_words_and_numbers_in_cells_are_drawn():
    areas = Area([0, 1, 1, None, 2, 3, 3], [0, 0, 1, None, 0, 0, 1], "areas")
    words = Points([1], [2], marker="", labels=["word"], side="middle")
    first = Panel("", [Stems([0, 1], [2, -3], "stems"), areas, words], bare=True)
    second = Panel("", [Heat([[0.0, 0.96], [0.5, None]], [0, 1], [0, 1], high=1, digits=1)])
    drawn, heat, *_ = matplotlib.to_matplotlib(Figure("", [first, second], "")).axes
    assert [len(patch.get_xy()) for patch in drawn.patches] == [4, 4, 0]  # the last: the legend
    (stems,) = drawn.collections
    assert [segment.tolist() for segment in stems.get_segments()] == [
        [[0, 0], [0, 2]],
        [[1, 0], [1, -3]],
    ]
    assert [text.get_text() for text in drawn.texts] == ["word"]
    assert [(text.get_text(), text.get_color()) for text in heat.texts] == [
        ("0.0", "black"),
        ("1.0", "white"),
        ("0.5", "black"),
    ]


def test_pyplot_and_its_figures_are_left_alone():
    code = (
        "import sys; from posenc.show.report.drawing import matplotlib;"
        " assert 'matplotlib.pyplot' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    "name", ["attention", "bands", "costs", "decay", "properties", "shift", "turning", "rotation"]
)
def test_no_text_is_cut_off_or_covers_another(name, drawn):
    made = matplotlib.to_matplotlib(drawn[name])
    made.draw_without_rendering()
    whole = made.bbox.padded(2)
    for ax in made.axes:
        ticks = [*ax.xaxis.get_ticklabels(), *ax.yaxis.get_ticklabels()]
        texts = [ax.title, ax.xaxis.label, ax.yaxis.label, *ticks]
        shown = [text for text in texts if text.get_text() and _within(text, ax)]
        boxes = [(text.get_text(), text.get_window_extent()) for text in shown]
        for text, box in boxes:
            assert whole.contains(*box.min), text
            assert whole.contains(*box.max), text
        for (one, box), (other, over) in combinations(boxes, 2):
            assert not box.padded(-1).overlaps(over.padded(-1)), f"{one} on {other}"


def _within(text, ax):
    """Ticks beyond the ends of an axis are made, but not drawn."""
    if text in (ax.title, ax.xaxis.label, ax.yaxis.label):
        return True
    x, y = ax.transData.inverted().transform(ax.transAxes.transform([(0, 0), (1, 1)])).T
    place = text.get_position()
    along_x = text in ax.xaxis.get_ticklabels()
    low, high = sorted(x if along_x else y)
    return low <= place[0 if along_x else 1] <= high
