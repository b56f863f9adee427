"""Clusters against words of a text that is made of clusters, and the plane against numpy."""

import numpy as np
import pytest
import torch
from refusals import refused

from posenc import ALiBi, Integer, Sinusoidal
from posenc.analysis.clouds import clouds
from posenc.analysis.text import parse

KINDS = [[f"{kind}word{'abcdefgh'[n]}" for n in range(8)] for kind in "pqrst"]


@pytest.fixture
def material():
    """Forty words, of which the eight of a kind have nearly one vector."""
    text = parse("kinds", " ".join(word for kind in KINDS for word in kind) + " .\n\n")
    made = torch.Generator().manual_seed(0)
    middle = torch.randn(5, 16, generator=made)
    vectors = torch.zeros(len(text.distinct), 16)
    for number, kind in enumerate(KINDS):
        for word in kind:
            near = middle[number] + 0.05 * torch.randn(16, generator=made)
            vectors[text.distinct.index(word)] = near
    return text, vectors


def test_groups_are_of_words_that_are_alike(material):
    found = clouds(*material, Integer(16))
    for number in range(5):
        words = {w for w, group in zip(found.words, found.group, strict=True) if group == number}
        assert words in [{*kind} for kind in KINDS]
    assert sorted(found.position) == [*range(40)]
    assert found.together[0] == 1
    assert found.together[1] < 0.8  # integers up to 39 drown vectors of length 4


def test_before_and_after_are_drawn_in_one_plane(material):
    text, vectors = material
    found = clouds(text, vectors, Sinusoidal(16))
    x = vectors[[text.distinct.index(word) for word in found.words]].double().numpy()
    angle = np.array(found.position)[:, None] / 10_000 ** (np.arange(8) / 8)
    after = x + np.stack((np.sin(angle), np.cos(angle)), -1).reshape(40, 16)
    axes = np.linalg.svd(x - x.mean(0))[2][:2]
    for points, rows in ((found.before, x), (found.after, after)):
        expected = (rows - x.mean(0)) @ axes.T
        assert np.abs(np.abs(points) - np.abs(expected)).max() < 1e-5


def test_what_adds_nothing_has_no_clouds(material):
    with refused(ValueError, "ALiBi"):
        clouds(*material, ALiBi(4))
    with refused(ValueError, 40):
        clouds(parse("few", "some words .\n\n"), torch.randn(3, 16), Integer(16))
