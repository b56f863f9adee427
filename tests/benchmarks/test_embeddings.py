"""Added rows, few samples: compared with the formula."""

import pytest

from benchmarks import embeddings

pytestmark = pytest.mark.usefixtures("few_others")


def test_rows_that_are_added_are_held_against_the_formula(monkeypatch):
    monkeypatch.setattr(embeddings, "SHAPE", (1, 16, 8))
    assert embeddings.time_embeddings(1, 0.0).row("posenc, rows made anew").error < 1e-6
    monkeypatch.setattr(embeddings, "Sinusoidal", lambda dim: embeddings_of_another_base(dim))
    with pytest.raises(AssertionError, match="off"):
        embeddings.time_embeddings(1, 0.0)


def embeddings_of_another_base(dim):
    from posenc import Sinusoidal

    return Sinusoidal(dim, base=9_000.0)
