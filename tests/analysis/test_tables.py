"""Tables with known faults: rows that keep some of the row before, and rows as drawn; and numpy."""

import numpy as np
import pytest
import torch

from posenc.analysis.tables import directions, rows


def smooth(count, width, alike=0.9, size=1.0):
    """Rows of which each keeps `alike` of the one before."""
    table = torch.randn(count, width)
    for p in range(1, count):
        table[p] = alike * table[p - 1] + (1 - alike**2) ** 0.5 * table[p]
    return size * table / width**0.5


def drawn(count, width, deviation=0.02):
    return torch.randn(count, width) * deviation


@pytest.mark.parametrize("width", [64, 128, 768])
@pytest.mark.parametrize("trained", [32, 256, 500])
@pytest.mark.parametrize("size", [0.5, 2.0])
def test_the_first_row_that_training_never_met_is_found_exactly(width, trained, size):
    table = torch.cat((smooth(trained, width, size=size), drawn(512 - trained, width)))
    found = rows(table)
    assert (found.trained, found.untrained) == (trained, "random")


def test_two_rows_that_were_never_met_are_enough():
    table = torch.cat((smooth(510, 128), drawn(2, 128)))
    assert (rows(table).trained, rows(table).untrained) == (510, "random")


def test_rows_of_the_size_of_trained_ones_are_told_by_their_likeness_alone():
    table = torch.cat((smooth(200, 128), drawn(100, 128, 128**-0.5)))
    assert abs(rows(table).trained - 200) <= 1


def test_rows_that_are_not_smooth_are_told_by_their_size_alone():
    table = torch.cat((drawn(200, 128, 0.1), drawn(100, 128, 0.02)))
    assert rows(table).trained == 200


@pytest.mark.parametrize("alike", [0.2, 0.5, 0.9, 0.99])
def test_a_table_that_is_smooth_throughout_has_no_boundary(alike):
    for seed in range(10):
        torch.manual_seed(seed)
        found = rows(smooth(512, 128, alike))
        assert (found.trained, found.untrained, found.falls) == (512, "", None)


def test_a_table_as_it_is_drawn_is_untrained_as_a_whole():
    for seed in range(40):
        torch.manual_seed(seed)
        found = rows(drawn(512, 64 * (1 + seed % 6)))
        assert (found.trained, found.untrained) == (0, "random")


def test_a_decline_by_degrees_is_no_boundary_and_its_start_is_found():
    table = torch.randn(512, 256)
    for p in range(1, 512):
        alike = 0.85 if p < 400 else 0.85 - 0.6 * (p - 400) / 112
        table[p] = alike * table[p - 1] + (1 - alike**2) ** 0.5 * table[p]
    found = rows(table)
    assert (found.trained, found.untrained) == (512, "")
    assert 385 <= found.falls <= 430


def test_likeness_that_drops_at_once_falls_from_there():
    table = torch.cat((smooth(400, 256), smooth(112, 256, 0.6)))
    found = rows(table)
    assert (found.trained, found.untrained) == (512, "")
    assert 398 <= found.falls <= 403


@pytest.mark.parametrize(("value", "what"), [(0.0, "zero"), (0.3, "alike")])
def test_rows_that_are_all_the_same_were_never_met(value, what):
    table = torch.cat((smooth(300, 64), torch.full((100, 64), value)))
    assert (rows(table).trained, rows(table).untrained) == (300, what)


def test_the_zero_row_of_a_padding_token_changes_nothing():
    table = torch.cat((smooth(300, 128), drawn(100, 128)))
    table[1] = 0
    assert rows(table).trained == 300
    table[310] = 0
    assert rows(table).trained == 300


def test_norms_and_likeness_are_those_of_numpy():
    table = torch.randn(10, 6)
    x, found = table.double().numpy(), rows(table)
    norms = np.linalg.norm(x, axis=1)
    assert np.allclose(found.norms, norms)
    assert np.allclose(found.likeness, (x[1:] * x[:-1]).sum(1) / norms[1:] / norms[:-1])
    variances = np.linalg.eigvalsh(np.cov(x.T))
    assert np.allclose(found.directions, variances.sum() ** 2 / (variances**2).sum())


def test_directions_count_those_along_which_rows_differ_alike():
    table = torch.zeros(1000, 20)
    table[:, :7] = torch.randn(1000, 7)
    assert directions(table) == pytest.approx(7, rel=0.02)
    assert directions(torch.zeros(5, 4)) == 0


@pytest.mark.parametrize("shape", [(1, 4), (2, 4), (3, 4), (5, 1)])
def test_small_tables_have_no_boundary_to_find(shape):
    table = torch.randn(shape)
    assert rows(table).trained in (0, len(table))


def retrained(rows_met, rows_in_all, width=256, grown=0.5, moved=0.5):
    """A smooth table of which a later training scaled the first rows and moved them all one way."""
    table = smooth(rows_in_all, width, 0.97)
    way = torch.randn(width)
    table[:rows_met] = grown * table[:rows_met] + moved * way / way.norm()
    return table


@pytest.mark.parametrize("met", [64, 128, 300])
def test_the_seam_of_a_later_training_on_shorter_texts_is_found(met):
    for seed in range(10):
        torch.manual_seed(seed)
        found = rows(retrained(met, 512))
        assert (found.seam, found.trained, found.untrained) == (met, 512, "")


def test_a_row_that_stands_out_where_texts_ended_belongs_to_those_before():
    table = retrained(128, 512)
    table[127] = 1.6 * torch.randn(256) / 256**0.5
    assert rows(table).seam == 128


@pytest.mark.parametrize("alike", [0.2, 0.5, 0.9, 0.99])
def test_a_table_of_one_training_has_no_seam(alike):
    for seed in range(10):
        torch.manual_seed(seed)
        assert rows(smooth(512, 128, alike)).seam is None


def test_a_single_odd_row_is_no_seam():
    for row in (40, 250, 500):
        table = smooth(512, 128, 0.95)
        table[row] = 3 * torch.randn(128) / 128**0.5
        assert rows(table).seam is None


def test_rows_that_were_never_met_are_no_seam_but_a_boundary():
    found = rows(torch.cat((smooth(300, 128), drawn(212, 128))))
    assert (found.trained, found.seam) == (300, None)
