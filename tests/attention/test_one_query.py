"""What a compiled kernel is asked for, and what is left to torch: none is installed here."""

import types

import pytest
import torch

from posenc import ALiBi, DeBERTa, Shaw, attend
from posenc.attention.one_query import LEAST_NUMBERS, fastest
from posenc.core import fast
from posenc.core.positions import sequence

KEYS = LEAST_NUMBERS // 64


@pytest.fixture
def asked(monkeypatch):
    """Calls of a kernel that does what torch's calls do."""
    calls = []

    def prepared(otherwise, q, k, v, scale, *added):
        calls.append(added)
        return otherwise

    module = types.SimpleNamespace(ByNumba=prepared)
    monkeypatch.setattr(fast, "_checked", lambda kernels: module)
    return calls


def tensors(keys=KEYS, queries=1, value=16, dtype=torch.float32):
    q, k = torch.randn(1, 4, queries, 16, dtype=dtype), torch.randn(1, 4, keys, 16, dtype=dtype)
    return q, k, torch.randn(1, 4, keys, value, dtype=dtype)


@pytest.mark.parametrize(
    "given",
    [{"keys": KEYS - 1}, {"queries": 2}, {"value": 8}, {"dtype": torch.float64}],
    ids=["few keys", "queries", "values of other widths", "float64"],
)
def test_what_the_kernel_is_not_for_is_left_to_torch(given, asked):
    otherwise = object()
    assert fastest(otherwise, *tensors(**given), 0.25) is otherwise
    assert not asked
    fastest(otherwise, *tensors(), 0.25)
    assert len(asked) == 1


@pytest.mark.parametrize(
    ("make", "terms"),
    [
        (lambda: ALiBi(4), {"row"}),
        (lambda: Shaw(16, reach=3), {"query_rows", "value_rows", "value_end"}),
        (lambda: DeBERTa(16, 4, reach=3), {"query_rows", "key_rows", "end"}),
    ],
    ids=["ALiBi", "Shaw", "DeBERTa"],
)
@torch.no_grad()
def test_a_step_of_decoding_asks_for_the_kernel_once(make, terms, asked):
    encoding, (q, k, v) = make(), tensors()
    at, k_at = encoding.prepare(sequence(1, KEYS - 1)), encoding.prepare(sequence(KEYS))
    for _ in range(6):
        ours, expected = (
            attend(q, k, v, encoding, at, k_at, implementation=path)
            for path in ("auto", "reference")
        )
        torch.testing.assert_close(ours, expected, rtol=1e-4, atol=1e-5)
    names = "row", "query_rows", "key_rows", "end", "value_rows", "value_end"
    for added in asked:
        assert {name for name, x in zip(names, added, strict=True) if x is not None} == terms
    assert 1 <= len(asked) <= 2
