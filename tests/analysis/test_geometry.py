"""Rotations of words against complex numbers."""

import cmath
import math

import pytest
import torch

from posenc.analysis.geometry import turned

THETA = math.radians(25)  # of the seed text's picture


def test_two_words_keep_their_angle_in_another_sentence():
    """The sentences of the seed text: "ate" and "cheese" are at 2 and 4, then at 5 and 7."""
    vector = {
        w: torch.randn(2).tolist() for w in "the mouse ate some cheese in house a cat".split()
    }
    pairs = []
    for sentence in ("the mouse ate some cheese", "in the house a cat ate some cheese"):
        words = sentence.split()
        found = turned(words, torch.tensor([vector[word] for word in words]), THETA)
        ate, cheese = words.index("ate"), words.index("cheese")
        pairs.append((found, ate, cheese))
        for n, (before, after) in enumerate(zip(found.before, found.after, strict=True)):
            expected = complex(*before) * cmath.exp(1j * n * THETA)
            assert complex(*after) == pytest.approx(expected, abs=1e-6)
    (first, *here), (second, *there) = pairs
    assert first.angle(*here) == pytest.approx(second.angle(*there), abs=1e-4)
    turn = math.remainder(first.angle(*here) - first.angle(*here, after=False) - 50, 360)
    assert turn == pytest.approx(0, abs=1e-4)  # two tokens on: 2 · 25°
