"""Fully masked keys and values, against the same text without them."""

import pytest
import torch

from posenc import CATALOG, NoPE, SelfAttention, attend, masks
from posenc.attention.inputs import validate
from posenc.attention.masked_inputs import zero_fully_masked
from posenc.core.biases import dense
from posenc.core.positions import folded

PATHS = ("auto", "reference", "blocks")
CARDS = [card for card in CATALOG if "on_embeddings" not in card.make(8, 4).acts_on]


def nothing(x):
    return x.mul_(float("nan"))


@pytest.mark.parametrize("card", CARDS, ids=lambda card: card.slug)
@pytest.mark.parametrize("path", PATHS)
@torch.no_grad()
def test_what_nobody_sees_changes_nothing(card, path):
    """NaN in keys ahead of every query, where some blocks of queries see no key at all."""
    encoding = card.make(8, 4)
    layer, x = SelfAttention(32, 4, encoding), torch.randn(1, 150, 32)
    pos = folded(150, encoding.axes)
    at = encoding.prepare(pos)
    q, k, v, at = layer.project(x, at)
    hides = lambda b, h, i, j: (j < 140) & (i >= 135)  # noqa: E731
    expected = attend(q, k, v, encoding, at, mask=hides, implementation=path)
    k, v = k.clone(), v.clone()
    nothing(k[:, :, 140:]), nothing(v[:, :, 140:])
    out = attend(q, k, v, encoding, at, mask=hides, implementation=path)
    torch.testing.assert_close(out, expected, rtol=1e-4, atol=1e-5)
    assert out[:, :, :135].eq(0).all() or "on_output" in encoding.acts_on


@pytest.mark.parametrize("path", PATHS)
def test_gradients_too_are_those_of_a_text_without(path):
    q, k, v = torch.randn(3, 1, 2, 9, 8).unbind()
    mask = masks.padding([6], tokens=9)
    k[:, :, 6:] = float("nan")
    q.requires_grad_()
    grads = []
    for some in (9, 6):
        out = attend(
            q, k[:, :, :some], v[:, :, :some], NoPE(), torch.arange(9), torch.arange(some),
            mask if some == 9 else None, implementation=path,
        )  # fmt: skip
        grads.append(torch.autograd.grad(out.sum(), q)[0])
    torch.testing.assert_close(*grads)


def test_keys_that_are_finite_are_left_as_they_are():
    q = torch.randn(1, 2, 9, 8)
    call = validate(q, q, q, NoPE(), None, None, masks.padding([6], tokens=9), None)
    assert call.hides
    assert zero_fully_masked(call).k is q


def test_a_mask_that_shows_every_key_to_some_query_hides_none():
    """Compare with the definition, key by key; a mask that hides no pair has no effect."""
    q, pos = torch.randn(1, 1, 6, 8), torch.arange(6)
    shown = {
        "causal": masks.causal(),
        "causal by position": masks.causal(pos, pos),
        "window": masks.window(2),
        "later": masks.causal(pos + 3, pos),
        "earlier": masks.causal(pos - 3, pos),
        "a window of later ones": masks.window(4, pos + 3, pos) & masks.causal(pos + 3, pos),
        "far": masks.window(3, pos + 30, pos),
        "all": masks.causal(pos + 5, pos),
        "a function": lambda b, h, i, j: i >= j,
    }
    for name, mask in shown.items():
        call = validate(q, q, q, NoPE(), None, None, mask, None)
        pairs = dense(mask, (1, 1, 6, 6))
        by_all = bool(pairs.any(-2).all())
        assert call.hides == (not by_all) or name == "a function", name
        assert (call.mask is None) == bool(pairs.all()), name
