"""`portray`: a `Comparison` of a few encodings, with detailed data for figures about each.

Weights are those of the comparison, except that queries and keys have the same projection: without
an encoding each word attends to similar words, so every other pattern is due to the encoding.
"""

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from posenc.analysis import decomposition, geometry, similarity
from posenc.analysis.clocks import Clocks, clocks
from posenc.analysis.clouds import Clouds, clouds
from posenc.analysis.decomposition import Decomposition
from posenc.analysis.dials import Dial, by_method
from posenc.analysis.frequencies import Extended, extended
from posenc.analysis.geometry import Turned
from posenc.analysis.grids import Map, to_patch
from posenc.analysis.precision import Precision, precision
from posenc.analysis.shift_matrix import Group, group
from posenc.analysis.similarity import Between, Bound, PairsApart, Peak
from posenc.analysis.text import Text, novel
from posenc.analysis.trajectory import Advance, advance
from posenc.attention.layer import SelfAttention
from posenc.attention.scores import scores
from posenc.catalog import choose
from posenc.compat.threads import threads
from posenc.core.biases import pairs
from posenc.core.encoding import Encoding
from posenc.core.masks import Mask, causal
from posenc.core.positions import folded
from posenc.encodings.nope import NoPE
from posenc.encodings.rotary.rope import RoPE
from posenc.lab.compare import comparison
from posenc.lab.compare.comparison import Comparison, Material, Settings, plain, seeded
from posenc.lab.compare.real_model import ModelReading
from posenc.properties.card import Card
from posenc.support.provenance import since

USUAL = "integer", "binary", "sinusoidal", "rope", "alibi"  # encodings if none is named
POSITIONS = 64  # rows of a similarity matrix
CHANNELS = 16  # channels of the vector that moves through positions, and of the shift matrix
ADVANCE = 48  # number of these positions
PATCHES, CHOSEN = 24, (8, 10)  # patches along a side of an image; row and column of the query
FAR = 4_096  # tokens of a similarity curve, and the trained length of frequencies
FACTOR = 8.0  # factor of the context extension
TARGET = 200  # distance in tokens of the key at which a score is made to peak


@dataclass(frozen=True)
class Closeup:
    """Detailed data of one encoding. Data that this kind of encoding does not have is None."""

    slug: str
    similarity: Between | None
    shift: Group | None
    advance: Advance | None
    clocks: Clocks | None  # None unless queries and keys are rotated, by positions of one axis
    waves: PairsApart | None
    clouds: Clouds | None  # None if the text has too few words
    patches: Map | None  # scores over an image, for an encoding with two axes
    attention: list[list[list[float]]]  # weights (head, query, key) for the sentence
    without: list[list[list[float]]]  # weights of the same layer without the encoding
    parts: Decomposition


@dataclass(frozen=True)
class FirstTurning:
    """Data for figures of the first rotary encoding in a comparison."""

    slug: str
    pair: tuple[str, str] | None  # two words that follow each other in two sentences
    sentences: dict[str, Turned]
    extended: Extended
    dials: dict[str, list[Dial]]  # dials by method of extension
    precision: Precision
    bound: Bound
    peak: Peak


@dataclass(frozen=True)
class Portrait:
    """The result of `portray`: a comparison of a few encodings, with data for figures."""

    comparison: Comparison
    sentence: list[str]  # words of the sentence for attention weights
    encodings: list[Closeup]
    turning: FirstTurning | None
    reading: ModelReading | None  # measurements of a real model, if one was given

    def __repr__(self) -> str:
        return f"Portrait: {self.comparison!r}"

    def _repr_html_(self) -> str:
        return self.comparison._repr_html_()

    def to_json(self) -> dict[str, Any]:
        """Return plain data for JSON, with the data for figures rounded to six digits."""
        tree = self.comparison.to_json()
        close = {
            "sentence": self.sentence,
            "encodings": [asdict(closeup) for closeup in self.encodings],
            "turning": self.turning and asdict(self.turning),
            "reading": self.reading and self.reading.to_json(),
        }
        return tree | plain({"portrait": close}, digits=6)


def portray(
    names: Sequence[str | Card | Encoding] = (),
    text: Text | None = None,
    reading: ModelReading | None = None,
    settings: Settings | None = None,
    progress: Callable[[str, int, int], None] = lambda doing, done, of: None,
) -> Portrait:
    """Compare a few encodings, and compute detailed data for figures of each.

    - `names`: names, cards or encodings, as of `compare`; five usual ones by default
    - `text`: a `Text`; None: the packaged novel
    - `reading`: measurements of a real model on the text, from `real_model.read`
    - `settings`: as of `compare`
    - `progress`: as of `compare`

    Returns a `Portrait`. Torch's global random state is unchanged. Raises LookupError for unknown
    names.
    """
    begun = time.time()
    cards = choose(names or USUAL)
    text, settings = text or novel(), settings or Settings()
    closely = len(cards) + 1  # steps of progress after those of the comparison
    done = 0

    def compared_so_far(doing: str, step: int, of: int) -> None:
        nonlocal done
        done = of
        progress(doing, step, of + closely)

    compared = comparison.compare(cards, text, settings, compared_so_far)
    with threads(1), torch.random.fork_rng(devices=[]):
        material = Material(text, settings)
        close = []
        for n, card in enumerate(cards):
            progress(f"{card.name}, closely", done + n, done + closely)
            close.append(_closeup(card, material, text))
        progress("frequencies", done + closely - 1, done + closely)
        rotary = [(card, e) for card in cards if isinstance(e := seeded(card, settings), RoPE)]
        turning = next((_turning(c, e, material, text) for c, e in rotary if e.axes == 1), None)
    compared = replace(compared, provenance=since(begun, settings.seed))
    return Portrait(compared, text.words[material.example], close, turning, reading)


def _closeup(card: Card, material: Material, text: Text) -> Closeup:
    settings = material.settings
    x = material.vectors[text.ids[material.example]]
    layer = _with_keys_as_queries(material.layer(seeded(card, settings)))
    encoding = layer.encoding
    small = card.make(CHANNELS, 1)
    added = "on_embeddings" in encoding.acts_on
    # An instance keeps its own sizes
    channels = (small.width if added else small.dim) or CHANNELS
    vector = torch.randn(channels, generator=torch.Generator().manual_seed(settings.seed))
    moved = None
    # `advance` raises ValueError for an encoding that acts on scores only
    with suppress(ValueError):
        moved = advance(small, vector, range(ADVANCE)) if encoding.axes == 1 else None
    # The same width for all encodings, so that their similarities can be compared
    same = card.make(settings.dim, 1)
    freqs = getattr(same, "freqs", None)
    line = freqs if isinstance(freqs, Tensor) and freqs.ndim == 1 else None
    mask = causal() if encoding.causal else None
    apart = None
    if added:
        with suppress(ValueError):
            apart = clouds(text, material.vectors, encoding)
    return Closeup(
        card.slug,
        similarity.between(same, POSITIONS),
        group(small, 3, 5) if encoding.axes == 1 else None,
        moved,
        clocks(small, range(ADVANCE)) if isinstance(small, RoPE) and small.axes == 1 else None,
        similarity.of_distance(line, FAR) if line is not None else None,
        apart,
        to_patch(encoding, PATCHES, PATCHES, CHOSEN) if encoding.axes == 2 else None,
        attention_weights(layer, x.unsqueeze(0), mask),
        attention_weights(without(layer), x.unsqueeze(0), mask),
        decomposition.of_layer(layer, x.unsqueeze(0), mask=mask),
    )


def without(layer: SelfAttention) -> SelfAttention:
    """Return a layer that shares the weights of this layer but has no encoding."""
    # Making a layer draws from the global generator
    with torch.random.fork_rng(devices=[]):
        plain = SelfAttention(layer.width, layer.heads, NoPE())
    for name in ("q", "k", "v", "out"):
        setattr(plain, name, getattr(layer, name))
    return plain


@torch.no_grad()
def attention_weights(
    layer: SelfAttention, x: Tensor, mask: Mask | None = None
) -> list[list[list[float]]]:
    """Compute attention weights (head, query, key) of the first text of a batch x."""
    encoding, pos = layer.encoding, folded(x.shape[-2], layer.encoding.axes)
    x = encoding.on_embeddings(x, encoding.prepare(pos))
    q, k, *_ = layer.project(x, encoding.prepare(pos))
    logits = scores(encoding, q, k, pos, pos, x=x, mask=mask)
    if mask is not None:
        logits = logits.masked_fill(~mask(*pairs(logits.shape)), float("-inf"))
    return logits.softmax(-1)[0].tolist()


@torch.no_grad()
def _turning(card: Card, encoding: RoPE, material: Material, text: Text) -> FirstTurning:
    layer = material.layer(encoding)
    x = material.vectors[text.ids[material.example]]
    q, k = (to(x).unflatten(-1, (layer.heads, -1))[:, 0] for to in (layer.q, layer.k))
    pair, spans = _word_pair_in_two_sentences(text)
    theta = float(encoding.freqs[len(encoding.freqs) // 4])
    sentences = {
        " ".join(text.words[span]): geometry.turned(
            text.words[span], material.vectors[text.ids[span]][:, :2], theta
        )
        for span in spans
    }
    return FirstTurning(
        card.slug,
        pair,
        sentences,
        extended(encoding.freqs.tolist(), FAR, FACTOR),
        by_method(encoding.freqs.tolist(), FAR, round(FACTOR * FAR)),
        precision(encoding.freqs, seed=material.settings.seed),
        similarity.bound(encoding.freqs, q[-1], k[0], FAR, encoding.layout),
        similarity.peak(encoding.freqs, q[-1], TARGET, 2 * TARGET, encoding.layout),
    )


def _word_pair_in_two_sentences(text: Text) -> tuple[tuple[str, str] | None, list[slice]]:
    """Find a word pair that occurs early in one short sentence and late in another."""
    met: dict[tuple[str, str], list[tuple[int, slice]]] = {}
    for span in text.sentences(shortest=6, longest=14):
        words = text.words[span]
        for place, pair in enumerate(pairwise(words)):
            if all(len(word) > 3 and words.count(word) == 1 for word in pair):
                met.setdefault(pair, []).append((place, span))
    repeated = {pair: places for pair, places in met.items() if len({p for p, _ in places}) > 1}
    if not repeated:
        return None, []
    ends = {
        pair: (min(places, key=_place), max(places, key=_place))
        for pair, places in repeated.items()
    }
    pair = max(ends, key=lambda pair: (ends[pair][1][0] - ends[pair][0][0], len("".join(pair))))
    return pair, [span for _, span in ends[pair]]


def _place(met: tuple[int, slice]) -> int:
    return met[0]


def _with_keys_as_queries(layer: SelfAttention) -> SelfAttention:
    """Copy a layer's query weights to its key weights, so that scores measure similarity."""
    layer.k.load_state_dict(layer.q.state_dict())
    return layer
