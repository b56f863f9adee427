"""Planes against eigenvectors by another route, rotations against complex numbers."""

import cmath
import math

import numpy as np
import pytest
import torch
from refusals import refused

from posenc import Integer, RoPE, Sinusoidal
from posenc.analysis.geometry import plane, project, turned
from posenc.analysis.text import novel

THETA = math.radians(25)  # of the seed text's picture


def test_the_plane_is_that_of_the_largest_eigenvalues_of_the_covariance():
    x = torch.randn(30, 6) * torch.tensor([5.0, 1, 3, 0.5, 0.1, 0.2])
    points, shown = plane(x)
    values, vectors = np.linalg.eigh(np.cov(x.double().numpy().T))
    assert shown == pytest.approx(values[-2:].sum() / values.sum())
    for axis in (0, 1):
        expected = (x.double().numpy() - x.double().numpy().mean(0)) @ vectors[:, -1 - axis]
        found = points[:, axis].numpy()
        assert np.allclose(found, expected) or np.allclose(found, -expected)


def test_the_picture_does_not_depend_on_a_sign():
    x = torch.randn(10, 4)
    assert plane(x)[0].allclose(plane(x + 100.0)[0], atol=1e-3)
    assert plane(-x)[0].allclose(-plane(x)[0])


def test_the_integer_orders_words_and_the_sinusoid_leaves_more_of_them_as_they_were():
    text = novel()
    span = text.sentences(shortest=20)[3]
    words, x = text.words[span], text.vectors(64)[text.ids[span]]
    integer, sinusoidal = project(words, x, Integer(64)), project(words, x, Sinusoidal(64))
    assert integer.words == words
    assert integer.ordered[0] < 0.7
    assert integer.ordered[1] > 0.99
    assert integer.explained[1] > 0.9
    assert sinusoidal.kept > integer.kept
    assert sinusoidal.before == integer.before


def test_positions_may_be_chosen():
    x = torch.randn(5, 8)
    found = project("abcde", x, Integer(8), torch.tensor([3, 3, 3, 3, 3]))
    assert found.kept == 1
    assert torch.tensor(found.after).allclose(torch.tensor(found.before), atol=1e-4)


def test_what_acts_elsewhere_is_refused():
    with refused(ValueError, "RoPE"):
        project("ab", torch.randn(2, 8), RoPE(8))


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
