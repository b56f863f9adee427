"""`Call`, the arguments of one attention call, against the tensors passed to it."""

import pytest
import torch

from posenc.attention.inputs import learns, validate
from posenc.core.biases import per_query_head
from posenc.encodings.bias.alibi import ALiBi
from posenc.encodings.bias.t5 import T5Bias


def call(dtype=torch.float32, groups=2, **options):
    q = torch.randn(2, 4, 5, 8, dtype=dtype)
    k, v = torch.randn(2, 2, groups, 7, 8, dtype=dtype)
    return validate(q, k, v, ALiBi(4), torch.arange(5), torch.arange(7), None, 0.3, **options)


def test_its_shape_is_that_of_the_scores():
    one = call()
    scores = one.q @ per_query_head(one.k, one.q).mT
    assert one.shape == scores.shape == (2, 4, 5, 7)


@pytest.mark.parametrize(
    ("dtype", "exact"),
    [
        (torch.bfloat16, torch.float32),
        (torch.float16, torch.float32),
        (torch.float32, torch.float32),
        (torch.float64, torch.float64),
    ],
    ids=str,
)
def test_scores_have_32_bits_at_least(dtype, exact):
    assert call(dtype).exact == exact


@pytest.mark.parametrize(
    "options", [{"softcap": 1.0}, {"sinks": torch.zeros(4)}, {"dropout": 0.1}], ids=str
)
def test_what_changes_the_weights_is_not_plain(options):
    assert call().plain
    assert not call(**options).plain


@pytest.mark.parametrize("groups", [1, 2, 4])
def test_heads_that_share_keys_get_one_each(groups):
    one = call(groups=groups)
    each = per_query_head(one.k, one.q)
    for head in range(4):
        assert each[:, head].equal(one.k[:, head * groups // 4])


def test_it_trains_if_anything_of_it_does():
    x = torch.zeros(1)
    assert not learns(ALiBi(4), x)
    assert learns(ALiBi(4), x, x.clone().requires_grad_())
    assert learns(T5Bias(4), x)
    q = torch.randn(1, 4, 5, 8)
    assert validate(q, q, q, T5Bias(4), None, None, None, None).trains
    with torch.no_grad():
        assert not validate(q, q, q, T5Bias(4), None, None, None, None).trains
