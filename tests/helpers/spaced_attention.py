"""Encodings, positions and masks to test attention paths that need equally spaced positions."""

import pytest
import torch

from posenc import (
    DeBERTa,
    RoPE,
    Shaw,
    Sum,
    TransformerXL,
    attend,
)
from posenc.core.masks import causal, window
from posenc.core.positions import sequence

DIM, HEADS = 8, 4
BY_CONTENT = {
    "shaw": Shaw(DIM, reach=5),
    "shaw 1": Shaw(DIM, reach=1),
    "shaw 0": Shaw(DIM, reach=0),
    "deberta": DeBERTa(DIM, HEADS, reach=9),
    "released": DeBERTa(DIM, HEADS, reach=9, released=True),
    "buckets": DeBERTa(DIM, HEADS, reach=40, buckets=12),
    "transformer-xl": TransformerXL(DIM, HEADS),
    "rope and shaw": Sum(RoPE(DIM), Shaw(DIM, reach=3)),
}
PLACES = {  # of queries and keys
    "text": (sequence(300), sequence(300)),
    "cached": (sequence(7, 293), sequence(300)),
    "one token": (sequence(1, 299), sequence(300)),
    "more queries": (sequence(300, 20), sequence(40)),
    "before all keys": (sequence(9), sequence(5, 3)),
    "every third": (3 * sequence(40, 2), 3 * sequence(40)),
    "every third, shifted": (3 * sequence(40) + 1, 3 * sequence(33)),
    "batch of one text": (sequence(30).expand(2, 30), sequence(30).expand(1, 30)),
    "single": (sequence(1), sequence(1)),
}
MASKS = {
    "none": lambda q, k: None,
    "causal": causal,
    "window": lambda q, k: window(9, q, k),
    "causal window": lambda q, k: causal(q, k) & window(20, q, k),
}
both = pytest.mark.parametrize("place", PLACES)
masked = pytest.mark.parametrize("mask", MASKS)


def heads(heads, tokens, channels=DIM, dtype=torch.float32):
    return torch.randn(2, heads, tokens, channels, dtype=dtype)


def tensors(q_pos, k_pos, groups=HEADS, values=DIM):
    keys = k_pos.shape[-1]
    return heads(HEADS, q_pos.shape[-1]), heads(groups, keys), heads(groups, keys, values)


def by_path(path, q, k, v, encoding, at, k_at, mask, **options):
    at, k_at = encoding.prepare(at), encoding.prepare(k_at)
    return attend(q, k, v, encoding, at, k_at, mask, implementation=path, **options)
