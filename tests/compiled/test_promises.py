"""Results of `conform` on tracing, for encodings with one graph and one that reads values."""

from posenc.core.encoding import Encoding
from posenc.properties import conform


class Reads(Encoding):
    """A query hook whose graph would depend on the numbers of q."""

    def on_queries(self, q, at):
        return 2 * q if float(q.sum()) > 0 else q


def test_one_graph_is_one_program_too():
    for mine in ("rope", "fox"):
        found = {one.name: one for one in conform(mine, 8, 2, promises=[], compiled=True)}
        assert found["compiled"].holds, found["compiled"]
        assert found["exported"].holds, found["exported"]


def test_what_reads_values_is_no_graph():
    failed = {one.name for one in conform(Reads(), 8, 2, promises=[], compiled=True).failed}
    assert failed == {"compiled", "exported"}
