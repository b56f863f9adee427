"""`compare`: measurements of encodings on the same text, with the same random weights."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import count
from math import isfinite
from typing import Any

import torch
from torch import Tensor

from posenc.analysis import cost, length, order, similarity
from posenc.analysis.cost import AtLength, Cost, Ratio
from posenc.analysis.length import FarChange
from posenc.analysis.similarity import Curve, Effect
from posenc.analysis.text import Text, novel
from posenc.attention.layer import SelfAttention
from posenc.catalog import CATALOG, choose, find
from posenc.compat.threads import threads
from posenc.core.encoding import Encoding
from posenc.core.masks import causal
from posenc.encodings.nope import NoPE
from posenc.properties import Finding, check
from posenc.properties.card import DIM, HEADS, SEED, Card, kept_findings
from posenc.properties.probe import Probe
from posenc.support.arguments import brief
from posenc.support.notebook import curve, table
from posenc.support.provenance import Provenance, since

SCHEMA = 3
MEMORY = "forward_memory", "training_memory"
BUSY = 0.1  # share of the timing spent waiting for a processor, above which a machine is busy


@dataclass(frozen=True)
class Settings:
    """The settings of a comparison: layer sizes, numbers of sample texts, and timing rounds."""

    dim: int = 64
    heads: int = 4
    window: int = 128
    windows: int = 24
    sentences: int = 16
    cost_tokens: int = 512
    cost_rounds: int = 6  # with fewer, the range of times is no 95 % interval of the median
    seed: int = 0

    @property
    def width(self) -> int:
        return self.dim * self.heads

    @property
    def starts(self) -> tuple[int, ...]:
        return 4 * self.window, 64 * self.window, 10**6

    @property
    def length_rounds(self) -> dict[int, int]:
        """The number of timing rounds for each text length except the main one, `cost_tokens`."""
        return {self.cost_tokens * 2**n // 8: self.cost_rounds for n in (0, 4)}


@dataclass(frozen=True)
class OrderChange:
    """The mean change of outputs after words are reordered.

    `plain` is the change without a mask, and `causal` the change with a causal mask.
    """

    plain: float
    causal: float


@dataclass(frozen=True)
class Multiple:
    """The cost of a forward pass at one text length, as multiples of the cost of NoPE.

    All are None if the encoding does not accept texts of this length.
    """

    tokens: int
    time: float | None
    low: float | None  # interval of `time`, as in `Ratio`
    high: float | None
    memory: float | None


@dataclass(frozen=True)
class Measured:
    """The measurements of one encoding in a comparison."""

    name: str
    slug: str
    family: str  # additive, rotary, bias, relative, none or own
    used_by: str  # published models that use it
    summary: str
    text: str  # docstring of its file
    formula: str
    acts_on: list[str]
    axes: int
    causal: bool  # made for causal attention, and measured with a causal mask
    parameters: int
    paper: dict[str, str] | None  # None: an encoding of a user's own
    properties: dict[str, Finding]
    shuffle: OrderChange
    duplicate: OrderChange | None  # None: no word occurs twice in a sentence of this text
    curve: Curve
    effect: Effect
    # Scores added by the first head for 32 queries and keys
    added: list[list[float | None]] | None
    far: list[FarChange]
    rows: list[list[float]] | None  # PE(p), or a rotated vector of ones: 64 positions, 64 channels
    cost: Cost
    cost_ratio: dict[str, float]  # ratios to NoPE, of times in the same round and of memory
    cost_by_length: list[AtLength]
    cost_ratio_by_length: list[Multiple]

    @property
    def untrained(self) -> bool:
        """True if the encoding has parameters, which have random values in a comparison."""
        return self.parameters > 0


@dataclass(frozen=True)
class Comparison:
    """The result of `compare`: the measurements of each encoding, and how they were made."""

    source: str
    words: int
    distinct_words: int
    sentence: str  # example of a sentence that was shuffled
    settings: Settings
    encodings: list[Measured]
    nope_cost: Cost  # cost of the layer without positions, the baseline of all ratios
    nope_by_length: list[AtLength]
    waited: float  # share of the timing that this process waited for a processor
    provenance: Provenance
    schema: int = SCHEMA

    @property
    def busy(self) -> bool:
        """True if this process waited for a processor during timing, so times are unreliable."""
        return self.waited > BUSY

    def __repr__(self) -> str:
        names = ", ".join(measured.name for measured in self.encodings)
        return f"Comparison of {len(self.encodings)} encodings on {self.source}: {names}"

    def _repr_html_(self) -> str:
        """Return an HTML table of all encodings, for display in a notebook."""
        heads = ["", "effect on scores by distance", "holds", "change when shuffled"]
        heads += ["time × NoPE", "training × NoPE"]
        rows = [
            [
                f"{measured.name}{'*' * measured.untrained}",
                _effect_curve(measured),
                ", ".join(_label(n) for n, f in measured.properties.items() if f.holds),
                f"{measured.shuffle.plain:.1%}",
                ratio_text(measured.cost.forward_ratio),
                ratio_text(measured.cost.training_ratio),
            ]
            for measured in self.encodings
        ]
        words = (
            f"{self.source}, {self.words:,} words. * has parameters, which are random here."
            " `posenc.plot.pictures` draws the figures, `posenc.guide()` helps to choose."
        )
        return table(heads, rows, words)

    def to_json(self) -> dict[str, Any]:
        """Return plain data for JSON; infinite and undefined numbers become null."""
        tree = asdict(self)
        for measured, source in zip(tree["encodings"], self.encodings, strict=True):
            for name, finding in source.properties.items():
                measured["properties"][name]["holds"] = finding.holds
        return plain(tree)


def _label(name: str) -> str:
    return name.replace("_", " ")


def _effect_curve(measured: Measured) -> str:
    """Draw a small curve: the mean score that an encoding adds at each distance."""
    mean = measured.effect.mean
    caption = f"{measured.name}: from {mean[0]:.3g} at the query to {mean[-1]:.3g}, farthest back"
    return curve(mean, caption)


def ratio_text(ratio: Ratio) -> str:
    """Format a ratio and its interval, such as "1.1 [1.0, 1.2]".

    >>> ratio_text(Ratio(1.12, 1.04, 1.18, rounds=9)), ratio_text(Ratio(61.2, 59.8, 63.1, rounds=3))
    ('1.1 [1.0, 1.2]', '61 [60, 63]')
    """
    digits = 0 if ratio.median >= 10 else 1
    median, low, high = (f"{x:.{digits}f}" for x in (ratio.median, ratio.low, ratio.high))
    return f"{median} [{low}, {high}]"


def compare(
    names: Sequence[str | Card | Encoding] = (),
    text: Text | None = None,
    settings: Settings | None = None,
    progress: Callable[[str, int, int], None] = lambda doing, done, of: None,
) -> Comparison:
    """Compare encodings: properties, similarity, attention on a text, and cost.

    - `names`: names of the catalogue, cards, or encodings of your own, as instances or as
      "my_module.py:Mine"; all of the catalogue by default. An instance keeps its sizes, which must
      be those of the settings
    - `text`: a `Text`; None: the packaged novel
    - `settings`: sizes of the layer, numbers of texts and rounds, and the seed; None: `Settings()`
    - `progress`: function that receives the name of the current step, the number of steps done, and
      the number of all steps

    Returns a `Comparison`, which a notebook displays. Torch's global random state is unchanged.
    Raises LookupError for unknown names.

    >>> few = Settings(windows=1, sentences=1, cost_tokens=64, cost_rounds=1)
    >>> [one.name for one in compare(["rope"], settings=few).encodings]
    ['RoPE']
    """
    begun = time.time()
    _check(text, settings, progress)
    cards = choose(names) or list(CATALOG)
    settings = settings or Settings()
    of = 1 + len(cards) + settings.cost_rounds + sum(settings.length_rounds.values())
    progress("reading", 0, of)
    text = text or novel()
    # One thread, because on a busy machine several would wait for each other in such small work
    with threads(1), torch.random.fork_rng(devices=[]):
        material = Material(text, settings)
        encodings = [seeded(card, settings) for card in cards]
        parts = []
        for done, (card, encoding) in enumerate(zip(cards, encodings, strict=True), start=1):
            progress(card.name, done, of)
            parts.append(_measure(card, encoding, material))
        progress("timing", 1 + len(cards), of)
        with _waiting() as waited:
            nope, *costs = _costs(cards, encodings, settings, lambda n: progress("timing", n, of))
        provenance = since(begun, settings.seed)
    progress("done", of, of)
    return Comparison(
        source=text.source,
        words=len(text.words),
        distinct_words=len(text.distinct),
        sentence=" ".join(text.words[material.example]),
        settings=settings,
        encodings=[
            Measured(
                **part,
                cost=cost,
                cost_ratio=_ratios(cost, nope[0]),
                cost_by_length=lengths,
                cost_ratio_by_length=[*map(_multiple, lengths, nope[1])],
            )
            for part, (cost, lengths) in zip(parts, costs, strict=True)
        ],
        nope_cost=nope[0],
        nope_by_length=nope[1],
        waited=waited[0],
        provenance=provenance,
    )


def _check(text: Any, settings: Any, progress: Any) -> None:
    if not isinstance(text, Text | None):
        raise TypeError(
            f"`text` must be a `Text`, got {brief(text)}. For a file, pass"
            " `posenc.analysis.text.load_text(path)`."
        )
    if settings is not None and not hasattr(settings, "dim"):
        raise TypeError(
            "`settings` must be `Settings` of `posenc.lab.compare.comparison`, got"
            f" {brief(settings)}. Pass `Settings(dim=64)`, for example."
        )
    if not callable(progress):
        raise TypeError(
            f"`progress` must be a function with arguments (doing, done, of), got"
            f" {brief(progress)}. Pass `print`, for example."
        )


class Material:
    """Data that all encodings share: word vectors, sentences, text windows and layer weights."""

    def __init__(self, text: Text, settings: Settings):
        self.settings = settings
        self.vectors = vectors = text.vectors(settings.width, settings.seed)
        self.windows = vectors[text.windows(settings.window, settings.windows)]
        spans = text.sentences() or [slice(0, min(24, len(text.words)))]
        twice = [span for span in spans if order.repeated(text.words[span])]
        self.spans = _spread(twice or spans, settings.sentences)
        self.example = min(self.spans, key=lambda span: span.stop - span.start)
        self.sentences = [vectors[text.ids[span]].unsqueeze(0) for span in self.spans]
        generator = torch.Generator().manual_seed(settings.seed)
        self.orders = [torch.randperm(x.shape[1], generator=generator) for x in self.sentences]
        self.repeats = [order.repeated(text.words[span]) for span in self.spans]

    @cached_property
    def plain(self) -> Tensor:
        """The attention scores of all text windows in the layer without a positional encoding."""
        return similarity.of_words(self.layer(NoPE()), self.windows)

    def layer(self, encoding: Encoding) -> SelfAttention:
        """Make an attention layer with the same random weights for every encoding."""
        width = self.settings.width
        layer = SelfAttention(width, self.settings.heads, encoding)
        generator = torch.Generator().manual_seed(self.settings.seed)
        # With these weights, q and k have variance 1
        for part in (layer.q, layer.k, layer.v, layer.out):
            part.weight.data.copy_(torch.randn(width, width, generator=generator) * width**-0.5)
            part.bias.data.zero_()
        return layer


def _measure(card: Card, encoding: Encoding, material: Material) -> dict[str, Any]:
    settings, layer = material.settings, material.layer(encoding)
    scores, rows = similarity.of_words(layer, material.windows), _rows_drawn(card)
    effect = similarity.effect(scores, material.plain)
    orders = list(zip(material.sentences, material.orders, strict=True))
    shuffles = [[order.shuffle(layer, x, o, mask) for x, o in orders] for mask in (None, causal())]
    pairs = [(x, at) for x, at in zip(material.sentences, material.repeats, strict=True) if at]
    repeats = [
        [order.duplicate(layer, x, *at, mask) for x, at in pairs] for mask in (None, causal())
    ]
    return {
        "name": card.name,
        "slug": card.slug,
        "family": card.family,
        "used_by": card.used_by,
        "summary": card.summary,
        "text": card.text,
        "formula": card.formula,
        "acts_on": [hook.removeprefix("on_").replace("_", " ") for hook in encoding.acts_on],
        "axes": encoding.axes,
        "causal": encoding.causal,
        "parameters": sum(p.numel() for p in encoding.parameters()),
        "paper": card.paper
        and {
            "short": card.paper.short,
            "title": card.paper.title,
            "link": card.paper.link,
            "bibtex": card.paper.bibtex,
        },
        "properties": _properties(card, encoding, settings),
        "shuffle": OrderChange(*map(_mean, shuffles)),
        "duplicate": OrderChange(*map(_mean, repeats)) if pairs else None,
        "curve": similarity.curve(scores),
        "effect": effect,
        "added": None if rows or effect.by_distance_alone else _added(scores - material.plain),
        "far": length.far_changes(layer, material.windows[:4], settings.starts),
        "rows": rows,
    }


def _properties(card: Card, encoding: Encoding, settings: Settings) -> dict[str, Finding]:
    """Measure all properties of an encoding, or return its stored results.

    Results are stored for catalogue entries at default sizes.
    """
    if card in CATALOG and (settings.dim, settings.heads, settings.seed) == (DIM, HEADS, SEED):
        return kept_findings(card)
    return check(encoding, settings.dim, settings.heads, settings.width)


def _costs(
    cards: list[Card], encodings: list[Encoding], settings: Settings, step: Callable[[int], None]
) -> list[tuple[Cost, list[AtLength]]]:
    """Measure the costs of NoPE, which is the baseline, and then of each encoding."""
    done = count(1 + len(cards))
    baseline = seeded(find("NoPE"), settings)
    layers = [SelfAttention(settings.width, settings.heads, e) for e in (baseline, *encodings)]
    x = torch.randn(1, settings.cost_tokens, settings.width)
    costs = cost.costs(layers, x, settings.cost_rounds, lambda: step(next(done)))
    lengths = cost.by_length(layers, settings.length_rounds, lambda: step(next(done)))
    return [
        (layer_cost, _at_lengths(layer_cost, more, settings))
        for layer_cost, more in zip(costs, lengths, strict=True)
    ]


def _at_lengths(cost: Cost, others: list[AtLength], settings: Settings) -> list[AtLength]:
    """Return the costs at all measured text lengths, shortest length first."""
    tokens = settings.cost_tokens
    usual = AtLength(tokens, cost.forward, cost.forward_memory, cost.forward_ratio)
    return sorted([*others, usual], key=lambda entry: entry.tokens)


@contextmanager
def _waiting() -> Iterator[list[float]]:
    """Measure the share of a `with` block's time in which this process waited for a processor.

    The process computes with one thread, so wall time beyond its CPU time is waiting.
    """
    waited = [0.0]
    wall, used = time.perf_counter(), time.process_time()
    yield waited
    wall, used = time.perf_counter() - wall, time.process_time() - used
    waited[0] = max(0.0, 1 - used / wall)


def _ratios(cost: Cost, nope: Cost) -> dict[str, float]:
    times = {"forward": cost.forward_ratio.median, "training": cost.training_ratio.median}
    return times | {key: getattr(cost, key) / getattr(nope, key) for key in MEMORY}


def _multiple(measured: AtLength, nope: AtLength) -> Multiple:
    if measured.ratio is None or measured.memory is None:
        return Multiple(measured.tokens, None, None, None, None)
    assert nope.memory
    ratio, memory = measured.ratio, measured.memory / nope.memory
    return Multiple(measured.tokens, ratio.median, ratio.low, ratio.high, memory)


def seeded(card: Card, settings: Settings) -> Encoding:
    torch.manual_seed(settings.seed)
    return card.make(settings.dim, settings.heads)


def _rows_drawn(card: Card) -> list[list[float]] | None:
    with torch.no_grad():
        # An instance keeps its own sizes
        encoding = card.make(64, 1)
        dim, heads = encoding.dim or 64, encoding.heads or 1
        probe = Probe(encoding, dim, heads, encoding.width or dim * heads)
        rows = probe.rows(probe.line(64))
    return None if rows is None else [[round(v, 4) for v in row] for row in rows.tolist()]


def _added(difference: Tensor) -> list[list[float | None]]:
    """Return the scores that an encoding adds for each query and key.

    The scores are those of the first head, for the first 32 tokens of the first text. A masked
    score is None.
    """
    return [
        [round(value, 4) if isfinite(value) else None for value in row]
        for row in difference[0, 0, :32, :32].tolist()
    ]


def _spread(spans: list[slice], most: int) -> list[slice]:
    """Select at most `most` sentences, evenly spaced over the text."""
    places = torch.linspace(0, len(spans) - 1, min(most, len(spans))).long()
    return [spans[place] for place in places]


def _mean(values: list[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def plain(tree: Any, digits: int = 17) -> Any:
    """Convert data to JSON values, with fractions rounded to `digits` significant digits."""
    if isinstance(tree, dict):
        return {key: plain(value, digits) for key, value in tree.items()}
    if isinstance(tree, list | tuple):
        return [plain(value, digits) for value in tree]
    if isinstance(tree, float) and isfinite(tree) and digits < 17:
        return float(f"{tree:.{digits}g}")
    return None if isinstance(tree, float) and not isfinite(tree) else tree
