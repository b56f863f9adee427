"""The specification of a model: each layer's encoding as data, and the encodings built from it.

Two configs that mean the same give equal specifications, however they spell it. torch is imported
where frequencies or encodings are asked for; a specification alone does not need it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Literal

from posenc.support.notebook import card, table

if TYPE_CHECKING:
    from torch import Tensor

    from posenc.core.encoding import Encoding
    from posenc.core.frequencies import Layout
    from posenc.core.masks import Mask
    from posenc.core.shapes import Frequencies
    from posenc.encodings.additive.learned import Learned
    from posenc.encodings.additive.sinusoidal import Sinusoidal
    from posenc.encodings.bias.alibi import ALiBi
    from posenc.encodings.bias.falcon import FalconALiBi
    from posenc.encodings.bias.t5 import T5Bias
    from posenc.encodings.relative.deberta import DeBERTa
    from posenc.encodings.relative.transformer_xl import TransformerXL
    from posenc.encodings.rotary.rope import RoPE

Method = Literal[
    "default", "linear", "ntk", "dynamic", "yarn", "longrope", "llama3", "proportional"
]


# The parts that are text models
TEXT = ("text_config", "decoder", "llm_config", "language_config", "thinker_config")
IDLE = ("linear_attention", "conv", "moe", "mlp")  # types of layers that do not attend


@dataclass(frozen=True)
class Rotary:
    """A layer that rotates queries and keys: `RoPE`."""

    dim: int  # channels of a head
    turned: int  # how many of them turn
    base: float
    method: Method = "default"
    factor: float = 1.0
    trained: int = 0  # tokens that the unscaled frequencies were trained on, where it matters
    ends: tuple[float, float] = (0.0, 0.0)  # ends of the ramp in turns: slow, fast (yarn, llama3)
    rounded: bool = True  # the ends of yarn's ramp
    share: float = 1.0  # share of the pairs that turn at all (proportional)
    short: tuple[float, ...] = ()  # factors of longrope, one a pair
    long: tuple[float, ...] = ()
    gain: float = 1.0  # factor of cos and sin
    logit_gain: float = 1.0  # factor of the softmax scale
    layout: Layout | None = None  # None: the config does not say, and the model is not known
    trailing: bool = False  # the last channels of a head turn, not the first
    backward: bool = False  # the other way round
    sections: tuple[int, ...] = ()  # pairs for each axis of M-RoPE
    woven: bool = False  # the sections are interleaved

    @property
    def by_length(self) -> bool:
        """True where the frequencies depend on the length of the text."""
        return self.method in ("dynamic", "longrope")

    def theta(self, length: int | None = None) -> list[float]:
        """θ of each pair, in radians per token, for texts of `length` tokens: plain numbers.

        Raises ValueError where θ depends on the length and `length` is None.
        """
        from posenc.encodings.rotary import theta as to

        if self.by_length and length is None:
            raise ValueError(
                f"the frequencies of {self.method!r} depend on how long the text is: pass `length`."
            )
        theta = self.unscaled()
        match self.method:
            case "linear":
                theta = to.interpolate(theta, self.factor)
            case "ntk":
                theta = to.ntk(theta, self.factor)
            case "dynamic":
                theta = to.dynamic_ntk(theta, length or 0, self.trained, self.factor)
            case "yarn":
                slow, fast = self.ends
                theta = to.yarn(theta, self.factor, self.trained, fast, slow, self.rounded)
            case "longrope":
                theta = to.longrope(theta, length or 0, self.trained, self.short, self.long)
            case "llama3":
                theta = to.llama3(theta, self.factor, self.trained, *self.ends)
            case "proportional":
                theta = to.interpolate(to.p_rope(theta, self.share), self.factor)
        return [-turn for turn in theta] if self.backward else theta

    def unscaled(self) -> list[float]:
        """θ before any extension, as in training."""
        from posenc.encodings.rotary.theta import frequencies

        return frequencies(self.turned, self.base)

    def frequencies(self, length: int | None = None) -> Frequencies:
        """θ as an encoding takes it, for texts of `length` tokens: of each axis, where it has more.

        Raises ValueError where θ depends on the length and `length` is None.
        """
        from torch import float64, tensor

        from posenc.encodings.rotary.mrope import mrope

        theta = tensor(self.theta(length), dtype=float64, device="cpu")
        return mrope(theta, self.sections, self.woven) if self.sections else theta

    def encoding(self, length: int | None = None, layout: Layout | None = None) -> RoPE:
        """Build the rotation; `layout` is needed where the config leaves it open."""
        from posenc.encodings.rotary.rope import RoPE

        layout = self.layout or layout
        if layout is None:
            raise ValueError(
                "the config does not say where the channels of a pair sit: pass `layout`, 'half' as"
                " in most transformers checkpoints, or 'interleaved'."
            )
        theta = self.frequencies(length)
        return RoPE(theta, self.dim, self.gain, layout, self.trailing, self.logit_gain)


@dataclass(frozen=True)
class Slopes:
    """A layer whose scores fall with distance, at a pace for each head: `ALiBi`."""

    heads: int
    strength: float = 1.0  # a factor of all slopes
    rounded: bool = False  # True: rounded to bfloat16, as in Falcon's code: `FalconALiBi`

    def encoding(self) -> ALiBi | FalconALiBi:
        if self.rounded:
            from posenc.encodings.bias.falcon import FalconALiBi

            return FalconALiBi(self.heads)
        from posenc.encodings.bias.alibi import ALiBi

        return ALiBi(self.heads, self.strength)


@dataclass(frozen=True)
class Buckets:
    """A layer with a learned bias for each bucket of distances: `T5Bias`, without its weights."""

    heads: int
    buckets: int
    reach: int
    bidirectional: bool

    def encoding(self) -> T5Bias:
        from posenc.encodings.bias.t5 import T5Bias

        return T5Bias(self.heads, self.buckets, self.reach, self.bidirectional)


@dataclass(frozen=True)
class Disentangled:
    """A layer that scores content against distance both ways: `DeBERTa`, without its weights."""

    dim: int
    heads: int
    width: int
    reach: int
    buckets: int = 0  # 0: each distance up to `reach` has a row of its own
    terms: tuple[str, ...] = ("c2p", "p2c")

    def encoding(self) -> DeBERTa:
        from posenc.encodings.relative.deberta import DeBERTa

        return DeBERTa(
            self.dim,
            self.heads,
            self.reach,
            self.width,
            released=True,
            buckets=self.buckets,
            terms=self.terms,
            clamped=False,  # as transformers does, which the config is for
        )


@dataclass(frozen=True)
class Projected:
    """A layer that scores queries against projected sines of the distance: `TransformerXL`.

    Without its weights, whose columns go with the sines before the cosines, or alternate.
    """

    dim: int
    heads: int
    width: int
    halves: bool = True

    def encoding(self) -> TransformerXL:
        from posenc.encodings.relative.transformer_xl import TransformerXL

        return TransformerXL(self.dim, self.heads, self.width)


@dataclass(frozen=True)
class Pictured:
    """A layer that rotates by rows and columns of patches, the picture taken as −1 … 1: DINOv3.

    Positions are points, as `positions.centred` makes them.
    """

    dim: int
    base: float

    def encoding(self) -> RoPE:
        from posenc.encodings.rotary.dinov3 import dinov3
        from posenc.encodings.rotary.rope import RoPE

        return RoPE(dinov3(self.dim, self.base), layout="half")


@dataclass(frozen=True)
class Sharpened:
    """A factor of the queries that grows with their position: `Temperature`."""

    every: int
    strength: float
    start: int

    def encoding(self) -> Encoding:
        from posenc.encodings.temperature import Temperature

        return Temperature(self.every, self.strength, self.start)


@dataclass(frozen=True)
class Layer:
    """The positional encoding of one layer, and the other settings of its attention.

    Cross-attention, where a decoder has it, sees all keys, without any encoding but at this scale.
    """

    encoding: Rotary | Slopes | Buckets | Disentangled | Projected | Pictured | None = None
    # None: NoPE
    kind: str = "full_attention"  # type of the layer, as transformers calls it
    attends: bool = True  # False: a convolution, a recurrence
    window: int | None = None  # tokens that a query sees, itself included; None: all
    temperature: Sharpened | None = None
    causal: bool = True  # a query sees what stands before it; False: both ways
    scale: float | None = None  # softmax scale; None: the encoding's own, usually 1/√channels
    softcap: float | None = None  # c of `attend(…, softcap=)`: scores s become c tanh(s/c)
    sinks: bool = False  # a learned logit of each head takes its share: `attend(…, sinks=)`
    beyond: str = ""  # what else `attend` does not do: a sentence

    def build(self, length: int | None = None, layout: Layout | None = None) -> Encoding:
        """Build the encoding of this layer's attention; it knows the softmax scale."""
        from posenc.core.encoding import Sum
        from posenc.encodings.nope import NoPE

        if isinstance(self.encoding, Rotary):
            encoding = self.encoding.encoding(length, layout)
        else:
            encoding = self.encoding.encoding() if self.encoding else NoPE()
        if self.scale is not None:
            encoding.softmax_scale = self.scale
        return Sum(encoding, self.temperature.encoding()) if self.temperature else encoding

    def mask(self, pos: Tensor | None = None, k_pos: Tensor | None = None) -> Mask | None:
        """Build the mask to pass to `attend`; None where a query sees all keys.

        Raises ValueError for layers that see their own chunk only, without positions.
        """
        from posenc.core import masks

        if self.window is None:
            return masks.causal(pos, k_pos) if self.causal else None
        if self.kind == "chunked_attention":
            if pos is None:
                raise ValueError("a chunk is told by its positions: pass `pos`.")
            k_pos = pos if k_pos is None else k_pos
            near = masks.documents(pos // self.window, k_pos // self.window)
        else:
            near = masks.window(self.window, pos, k_pos)
        return near & masks.causal(pos, k_pos) if self.causal else near

    @property
    def unlike(self) -> tuple[str, ...]:
        """Words for what this layer's attention does and `attend` does not; usually none."""
        return (self.beyond,) if self.beyond else ()


@dataclass(frozen=True)
class Table:
    """A learned row for each position, added to the embeddings: `Learned`, without its rows."""

    rows: int  # rows for positions 0 … rows − 1
    width: int
    offset: int = 0  # stored rows before that of position 0

    def encoding(self) -> Learned:
        from posenc.encodings.additive.learned import Learned

        return Learned(self.rows, self.width)


@dataclass(frozen=True)
class Waves:
    """Sines and cosines added to the embeddings: `Sinusoidal`."""

    width: int
    base: float = 10_000.0
    halves: bool = False  # all sines before all cosines
    closed: bool = False  # the slowest wave is `base` itself: exponents j / (d/2 − 1), not 2j/d
    rows: int | None = None
    offset: int = 0  # the number of position 0

    def encoding(self) -> Sinusoidal:
        from posenc.encodings.additive.sinusoidal import Sinusoidal

        pairs = self.width // 2
        base = self.base ** (pairs / (pairs - 1)) if self.closed else self.base
        return Sinusoidal(self.width, base, "half" if self.halves else "interleaved")


class OfLayers(list["Encoding"]):
    """The encodings of a model's layers, and the table that it adds to embeddings besides."""

    def __init__(self, encodings: Iterable[Encoding], embedding: Table | Waves | None):
        super().__init__(encodings)
        self.embedding = embedding


@dataclass(frozen=True)
class Spec:
    """A model's layers and embedding. `notes` say what was assumed, ignored or looks wrong, and
    `doubts` for which of these reasons no text length can be vouched for.
    """

    model: str  # its `model_type`
    kind: str  # one of `families.Kind`
    layers: tuple[Layer, ...] = ()
    embedding: Table | Waves | None = None
    heads: int = 0
    groups: int = 0  # heads of keys and values
    context: int | None = None  # tokens it is meant for
    trained: int | None = None  # tokens its positions were trained on, before being stretched
    notes: tuple[str, ...] = field(default=(), compare=False)
    doubts: tuple[str, ...] = field(default=(), compare=False)
    parts: Mapping[str, Spec] = field(default_factory=dict)  # configs inside, encoder and decoder
    applied: tuple[str, ...] = ()  # encodings of posenc that it was saved with, in place of its own

    def __repr__(self) -> str:
        kinds = len(set(self.layers))
        parts = f", parts {', '.join(self.parts)}" if self.parts else ""
        return f"Spec({self.model!r}, {len(self.layers)} layers of {kinds} kinds{parts})"

    def _repr_html_(self) -> str:
        """A card for a notebook: sizes, the embedding, each kind of layer, and the notes."""
        counts = {
            "heads": self.heads,
            "heads of keys": self.groups,
            "tokens it takes": self.context,
            "tokens of training": self.trained,
        }
        lines = [", ".join(f"{name} {count:,}" for name, count in counts.items() if count)]
        lines += [f"embeddings: {_stated(self.embedding)}"] if self.embedding else []
        rows = [
            (
                str(self.layers.count(layer)),
                _stated(layer.encoding),
                _stated(replace(layer, encoding=None)),
            )
            for layer in dict.fromkeys(self.layers)
        ]
        heads = "layers", "encoding", "attention"
        more = "".join(part._repr_html_() for part in self.parts.values())
        body = table(heads, rows) if rows else ""
        return card(self.model or "a config", [*lines, *self.notes], more=body + more)

    def encodings(self, length: int | None = None, layout: Layout | None = None) -> OfLayers:
        """Build the encoding of each layer that attends, bottom first; equal layers share one.

        A table that is added to embeddings is none of them: it is `embedding`, also of the list.
        `adapter.apply` rejects a list with such a table, since it would switch the table off.

        They know the softmax scale; masks are `layer.mask`, the cap of scores is `layer.softcap`,
        `layer.sinks` says whether weights of the model are to be given as `sinks`, and
        `layer.unlike` what `attend` does not do as the model does.
        `length` is needed where frequencies depend on it, `layout` where the config leaves it open.
        """
        built = {layer: layer.build(length, layout) for layer in dict.fromkeys(self.layers)}
        return OfLayers((built[layer] for layer in self.layers if layer.attends), self.embedding)

    @property
    def main(self) -> Spec:
        """The spec of the text model: this one, or a part of it."""
        return self.parts[self.main_place[0]].main if self.main_place else self

    @property
    def main_place(self) -> tuple[str, ...]:
        """The keys that lead to `main`: ("text_config",), or nothing."""
        if self.layers or self.embedding or not self.parts:
            return ()
        name = next((name for name in TEXT if name in self.parts), next(iter(self.parts)))
        return (name, *self.parts[name].main_place)

    @property
    def stored(self) -> tuple[int, int] | None:
        """Rows and width of its table of positions in a file of weights; None: no table."""
        match self.embedding:
            case Table(rows=int(rows)) | Waves(rows=int(rows)):
                return rows + self.embedding.offset, self.embedding.width
        return None

    @property
    def rotary(self) -> tuple[Rotary, ...]:
        """The distinct rotations of its layers."""
        turns = (layer.encoding for layer in self.layers if isinstance(layer.encoding, Rotary))
        return tuple(dict.fromkeys(turns))

    @property
    def far_seeing(self) -> tuple[Rotary, ...]:
        """The distinct rotations of the layers that see the whole text."""
        seeing = [layer for layer in self.layers if layer.window is None]
        return replace(self, layers=tuple(seeing)).rotary


def _stated(part: Any) -> str:
    """A part of a specification with what differs from its defaults.

    >>> _stated(Slopes(8)), _stated(None)
    ('Slopes(heads=8)', 'no encoding (NoPE)')
    """
    if part is None:
        return "no encoding (NoPE)"
    values = {one.name: getattr(part, one.name) for one in fields(part)}
    stated = [f"{one.name}={_short(values[one.name])}" for one in fields(part)
              if values[one.name] != one.default]  # fmt: skip
    return f"{type(part).__name__}({', '.join(stated)})"


def _short(value: Any) -> str:
    if not isinstance(value, tuple) or len(value) < 5:
        return repr(value)
    first: Any = value[0]
    return f"({first!r}, … {len(value)} numbers)"
