"""The toy world against the explorer's JavaScript, which draws it for itself, and against seeds."""

import pytest
import torch
from javascript import evaluate

from posenc import plot
from posenc.analysis import toy
from posenc.catalog import create

WORDS = ["the", "dog", "naïve", "狗", "🐕"]
SENTENCE = "the old dog chased another dog"
DRAWN = """({ words, seeds }) => [
  words.map((word) => [...vectorOf(word, 7)]), seeds.map((seed) => [...normals(seed, 33)])
]"""


def test_words_and_projections_have_the_numbers_of_the_page():
    seeds = [0, 11, 12, 2**32 - 1]
    words, normals = evaluate(
        ["interpreter.js", "page/compute.js"], DRAWN, {"words": WORDS, "seeds": seeds}
    )
    for word, numbers in zip(WORDS, words, strict=True):
        assert toy.vector(word, 7).tolist() == pytest.approx(numbers, rel=1e-12)
    for seed, numbers in zip(seeds, normals, strict=True):
        assert toy.normals(seed, 33).tolist() == pytest.approx(numbers, rel=1e-12)


def test_only_an_encoding_tells_the_two_dogs_apart():
    """And what bites whom; ALiBi, which is symmetric, mirrors what is mirrored."""

    def rows(name, sentence, n=1):
        heat, *_ = plot.attention(name, sentence).figure.panels[n].marks
        return torch.tensor(heat.z)

    plain, turned = rows("nope", SENTENCE), rows("rope", SENTENCE)
    assert torch.equal(plain[2], plain[5])
    assert (turned[2] - turned[5]).abs().max() > 0.05
    for name, same in (("nope", True), ("rope", False), ("sinusoidal", False), ("alibi", True)):
        bites = rows(name, "dog bites man")
        assert (bites - torch.eye(3)).abs().max() > 0.2
        bitten = rows(name, "man bites dog").flip(0, 1)
        assert torch.allclose(bites, bitten, atol=1e-6) == same


@pytest.mark.parametrize(
    ("name", "by_distance"),
    [
        *((name, True) for name in ("rope", "alibi", "kerple", "shaw", "xpos")),
        *((name, False) for name in ("sinusoidal", "integer", "binary")),
    ],
)
def test_of_one_word_what_goes_by_distance_is_the_same_along_each_diagonal(name, by_distance):
    torch.manual_seed(0)
    scores = toy.added(create(name, toy.DIM, toy.HEADS), [toy.WORD] * 24)[0, 0]
    apart = max((d.max() - d.min()).item() for d in (scores.diagonal(-n) for n in range(24)))
    assert (apart < 1e-4) == by_distance
    assert scores.abs().max() > 0.1
