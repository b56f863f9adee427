"""T5's table read out by the authors' own bucketing, in transformers; Shaw's by hand."""

import pytest
import torch

from posenc.analysis.relative_tables import shaw, t5


@pytest.mark.parametrize("bidirectional", [False, True])
def test_each_distance_has_the_value_of_its_bucket_in_transformers(bidirectional):
    modeling = pytest.importorskip("transformers.models.t5.modeling_t5")
    weight = torch.randn(32, 3)
    found = t5(weight, 128, bidirectional)
    ahead = -torch.tensor(found.distance)  # theirs: key − query
    bucket = modeling.T5Attention._relative_position_bucket(ahead, bidirectional, 32, 128)
    assert torch.tensor(found.heads).allclose(weight[bucket].T)
    assert min(found.distance) == (-128 if bidirectional else 0)


@pytest.mark.parametrize("bidirectional", [False, True])
def test_between_the_points_of_a_curve_it_is_flat(bidirectional):
    modeling = pytest.importorskip("transformers.models.t5.modeling_t5")
    weight = torch.randn(32, 1)
    found = t5(weight, 128, bidirectional)
    every = torch.arange(min(found.distance), 129)
    bucket = modeling.T5Attention._relative_position_bucket(-every, bidirectional, 32, 128)
    whole = dict(zip(every.tolist(), weight[bucket, 0].tolist(), strict=True))
    known = dict(zip(found.distance, found.heads[0], strict=True))
    below = None
    for distance in every.tolist():
        below = known.get(distance, below)
        assert whole[distance] == pytest.approx(below)
    assert len(found.distance) < 64


def test_shaws_rows_go_from_keys_behind_to_keys_ahead():
    table = torch.eye(3, 4) * torch.tensor([[1.0], [2.0], [3.0]])  # keys 1 behind, at, 1 ahead
    table[1, 0] = 2
    found = shaw(table)
    assert (found.distance, found.likeness) == ([1, 0, -1], [pytest.approx(0.5**0.5), 0])
    assert found.norms == pytest.approx([1, 8**0.5, 3])
