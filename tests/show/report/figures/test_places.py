"""Points against the hooks of classes that are written here."""

from posenc import RoPE
from posenc.core.encoding import Encoding
from posenc.show.report.figures import places as figures


class AtValues(Encoding):
    def on_values(self, v, at):
        return v


class AtBoth(AtValues):
    def on_embeddings(self, x, at):
        return x


def test_an_encoding_is_where_its_hooks_are():
    made = {"RoPE": RoPE(8), "both": AtBoth(), "mine": AtValues(), "none": Encoding()}
    figure = figures.places({name: one.acts_on for name, one in made.items()})
    (panel,) = figure.panels
    *lines, points = panel.marks
    found = {name: set() for name in panel.y_names}
    for place, row in zip(points.x, points.y, strict=True):
        found[panel.y_names[row]].add(panel.x_names[place])
    assert found == {
        "RoPE": {"queries and keys"},
        "both": {"embeddings", "values and output"},
        "mine": {"values and output"},
        "none": set(),
    }
    (line,) = lines
    assert [panel.x_names[place] for place in line.x] == ["embeddings", "values and output"]
    assert "Nowhere: none." in figure.says
