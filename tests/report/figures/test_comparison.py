"""Marks against the comparison that they are drawn from."""

from posenc.report import figures
from posenc.report.drawing.data_table import data_table


def test_every_property_of_every_encoding_is_marked_once(everything):
    figure = figures.properties(everything)
    marks = {mark.name: set(zip(mark.x, mark.y, strict=True)) for mark in figure.panels[0].marks}
    for y, measured in enumerate(everything.encodings):
        for x, finding in enumerate(measured.properties.values()):
            word = {True: "holds", False: "does not", None: "not applicable"}[finding.holds]
            assert [name for name, places in marks.items() if (x, y) in places] == [word]
    listed = data_table(figure)
    assert listed.heading[1:] == [name.replace("_", " ") for name in measured.properties]
    assert [row[0] for row in listed.rows] == [m.name for m in everything.encodings]


def test_the_slowest_is_named_and_nope_is_only_the_measure(everything):
    says = figures.costs(everything).says
    slowest = max(everything.encodings, key=lambda m: m.cost_ratio["training"])
    assert f"with {slowest.name}, the slowest" in says or slowest.slug == "nope"
    assert "with NoPE" not in says


def test_who_is_blind_to_the_order_is_named(everything):
    assert "Without a mask these cannot see the order: NoPE." in figures.order(everything).says


def test_curves_leave_out_the_token_itself(everything):
    for panel, measured in zip(
        figures.curves(everything).panels, everything.encodings, strict=True
    ):
        line = panel.marks[-1]
        assert line.x[0] == 1
        assert line.y == measured.curve.mean[1:]
