"""Specification of a model's positional encodings as plain data, from which modules are built.

Two configs with the same meaning give equal specifications, however they spell it. torch is
imported only by the methods that build frequencies, encodings or masks.
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
    from posenc.core.shapes import Frequencies, Points
    from posenc.encodings.additive.learned import Learned
    from posenc.encodings.additive.sinusoidal import Sinusoidal
    from posenc.encodings.additive.sinusoidal_grid import SinusoidalGrid
    from posenc.encodings.bias.alibi import ALiBi
    from posenc.encodings.bias.falcon import FalconALiBi
    from posenc.encodings.bias.swin import Swin
    from posenc.encodings.bias.swin_v2 import SwinV2
    from posenc.encodings.bias.t5 import T5Bias
    from posenc.encodings.relative.deberta import DeBERTa
    from posenc.encodings.relative.mvitv2 import MViTv2
    from posenc.encodings.relative.transformer_xl import TransformerXL
    from posenc.encodings.rotary.fope import FoPE
    from posenc.encodings.rotary.rope import RoPE

Method = Literal[
    "default", "linear", "ntk", "dynamic", "yarn", "longrope", "llama3", "proportional"
]


# Methods by which `resampling.resized` fits a grid of rows to an image
Resizing = Literal[
    "", "bilinear", "bilinear, corners aligned", "bilinear, zeros outside", "bilinear, antialiased",
    "bilinear, square",
    "bicubic", "bicubic, antialiased", "bicubic, sides + 0.1", "nearest", "cropped", "repeated",
]  # fmt: skip

# Keys of nested configs that describe a text model
TEXT = ("text_config", "decoder", "llm_config", "language_config", "thinker_config")
AXES: tuple[str, ...] = ("frame", "row", "column")  # of a point
IDLE = ("linear_attention", "conv", "moe", "mlp")  # types of layers that do not attend


@dataclass(frozen=True)
class Rotary:
    """Settings of RoPE, including the scaling method."""

    kind = "rotary"
    dim: int  # channels of a head
    turned: int  # rotated channels of a head
    base: float
    method: Method = "default"
    factor: float = 1.0
    trained: int = 0  # tokens of the training before scaling, for methods that need it
    ends: tuple[float, float] = (0.0, 0.0)  # ends of the ramp in turns: slow, fast (yarn, llama3)
    rounded: bool = True  # True: the ends of yarn's ramp are rounded to whole pairs
    share: float = 1.0  # share of the pairs with a frequency above 0 (proportional)
    short: tuple[float, ...] = ()  # longrope's factor of each pair, for short and long texts
    long: tuple[float, ...] = ()
    gain: float = 1.0  # factor of cos and sin
    logit_gain: float = 1.0  # factor of the softmax scale
    layout: Layout | None = None  # None: unknown, the config and the model do not state it
    trailing: bool = False  # True: the last channels of a head are rotated, not the first
    backward: bool = False  # True: by −θ
    sections: tuple[int, ...] = ()  # pairs for each axis of M-RoPE
    interleaved: bool = False  # True: pairs are assigned to the axes in turn, not in blocks

    @property
    def by_length(self) -> bool:
        """True if RoPE's frequencies depend on the length of the text (dynamic NTK, LongRoPE)."""
        return self.method in ("dynamic", "longrope")

    def theta(self, length: int | None = None) -> list[float]:
        """Return θ of each pair as a float, in radians per token, for texts of `length` tokens.

        Raises ValueError if θ depends on the length and `length` is None.
        """
        from posenc.encodings.rotary import theta as to

        if self.by_length and length is None:
            raise ValueError(
                f"`length` must be a number of tokens, got None. {self.method!r} frequencies depend"
                " on the length of the text."
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
        """Return θ of each pair, in radians per token, as in training before context extension."""
        from posenc.encodings.rotary.theta import frequencies

        return frequencies(self.turned, self.base)

    def frequencies(self, length: int | None = None) -> Frequencies:
        """Return θ as a float64 tensor of shape (pair,), or (axis, pair) for M-RoPE.

        Raises ValueError if θ depends on the length and `length` is None.
        """
        from torch import float64, tensor

        from posenc.encodings.rotary.mrope import mrope

        theta = tensor(self.theta(length), dtype=float64, device="cpu")
        return mrope(theta, self.sections, self.interleaved) if self.sections else theta

    def encoding(self, length: int | None = None, layout: Layout | None = None) -> RoPE:
        """Return the RoPE module; `layout` is needed if the config does not determine it."""
        from posenc.encodings.rotary.rope import RoPE

        layout = self.layout or layout
        if layout is None:
            raise ValueError(
                "`layout` must be 'half', as in most transformers checkpoints, or 'interleaved',"
                " got None. The config does not determine it."
            )
        theta = self.frequencies(length)
        return RoPE(theta, self.dim, self.gain, layout, self.trailing, self.logit_gain)


@dataclass(frozen=True)
class Fourier:
    """Settings of FoPE, which rotates by sums of waves; the mixing weights are not included.

    Pairs without a wave have cos 1 and sin 1, as in the code of Intern-S1-Pro.
    """

    kind = "fope"
    dim: int
    base: float
    waves: int  # number of kept waves, the fastest
    heads: int = 1  # key heads with weights of their own; 1: all share them
    spread: float = 0.3  # size of the random part of the weights before training
    method = "default"  # no context extension, as in `Rotary`

    @property
    def unmixed(self) -> Rotary:
        """Plain RoPE with the same frequencies, as if FoPE's mixing weights were the identity."""
        share = (self.waves + 0.5) / (self.dim // 2)
        return Rotary(
            self.dim, self.dim, self.base, "proportional", share=min(share, 1.0), layout="half"
        )

    def encoding(self) -> FoPE:
        from posenc.encodings.rotary.fope import FoPE

        return FoPE(
            self.dim, self.heads, waves=self.waves, base=self.base, gain=self.spread, rest=1.0
        )


@dataclass(frozen=True)
class Slopes:
    """Settings of ALiBi, a bias that falls linearly with distance, with one slope per head."""

    kind = "alibi"
    heads: int
    strength: float = 1.0  # factor of all slopes
    rounded: bool = False  # True: bias rounded to bfloat16 as in Falcon's code (`FalconALiBi`)

    def encoding(self) -> ALiBi | FalconALiBi:
        if self.rounded:
            from posenc.encodings.bias.falcon import FalconALiBi

            return FalconALiBi(self.heads)
        from posenc.encodings.bias.alibi import ALiBi

        return ALiBi(self.heads, self.strength)


@dataclass(frozen=True)
class Buckets:
    """Settings of T5's bias, which has one learned value per bucket of distances."""

    kind = "t5"
    heads: int
    buckets: int
    reach: int
    bidirectional: bool

    def encoding(self) -> T5Bias:
        from posenc.encodings.bias.t5 import T5Bias

        return T5Bias(self.heads, self.buckets, self.reach, self.bidirectional)


@dataclass(frozen=True)
class Disentangled:
    """Settings of DeBERTa's disentangled attention, with scores between content and offset."""

    kind = "deberta"
    dim: int
    heads: int
    width: int
    reach: int
    buckets: int = 0  # 0: one row for each distance up to `reach`
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
            clamped=False,  # as in transformers
        )


@dataclass(frozen=True)
class Projected:
    """Settings of Transformer-XL's bias, which scores queries against projected sinusoids."""

    kind = "transformer-xl"
    dim: int
    heads: int
    width: int
    halves: bool = True  # all sines before all cosines; False: alternating

    def encoding(self) -> TransformerXL:
        from posenc.encodings.relative.transformer_xl import TransformerXL

        return TransformerXL(self.dim, self.heads, self.width)


@dataclass(frozen=True)
class PatchOrder:
    """Order in which a vision model lists the patches of an image; see `positions.patches`."""

    order: Literal["rows", "blocks", "windows"] = "rows"
    merge: int = 1  # patches along each side of a block
    window: int = 1  # patches along each side of a window

    def points(self, *sizes: int) -> Points:
        """Return the points of all patches of an image or video, in the model's order."""
        from posenc.positions.patches import patches

        return patches(*sizes, order=self.order, merge=self.merge, window=self.window)


@dataclass(frozen=True)
class PatchRotary:
    """Settings of axial RoPE, which rotates by an image patch's row, column and, for video, frame.

    Positions are points, as returned by `points`.
    """

    kind = "axial"
    dim: int
    base: float
    axes: tuple[str, ...] = ("row", "column")  # in the order of their pairs
    pairs: Literal["blocks", "turns", "split"] = "blocks"  # see `theta`
    layout: Literal["half", "interleaved", "half of each axis"] = "half"
    scaled: bool = False  # True: points from −1 to 1 across the image, and 2π θ
    first: int = 0  # row and column of the first patch
    step: float = 1.0  # distance of neighbouring patches
    order: PatchOrder = PatchOrder()

    def theta(self) -> Frequencies:
        """Return θ of each axis and pair, (axis, pair), with axes in the order of a position.

        blocks    pairs of the first axis, then of the next, with θ_c = base^(−c/m) for m pairs
        turns     the axes take the pairs in turn, with the same θ
        split     blocks, but axis a of n has every n-th θ of one head, base^(−2(nc + a)/d)
        """
        import torch

        from posenc.core.frequencies import frequencies
        from posenc.encodings.rotary.axial import axial
        from posenc.encodings.rotary.dinov3 import dinov3

        axes = len(self.axes)
        theta = dinov3(self.dim, self.base) if self.scaled else axial(self.dim, axes, self.base)
        theta = theta[:, : axes * (self.dim // (2 * axes))]
        if self.pairs == "turns":
            theta = theta.unflatten(-1, (axes, -1)).transpose(-1, -2).flatten(-2)
        elif self.pairs == "split":
            each = frequencies(self.dim, self.base).unflatten(-1, (-1, axes)).T
            theta = torch.block_diag(*(row[None] for row in each))
        return theta[[self.axes.index(axis) for axis in AXES if axis in self.axes]]

    def encoding(self) -> Encoding:
        from posenc.core.encoding import Sum
        from posenc.encodings.rotary.rope import RoPE

        theta = self.theta()
        if self.layout != "half of each axis":
            return RoPE(theta, self.dim, layout=self.layout)
        first, last = theta.chunk(2, -1)
        return Sum(
            RoPE(first, self.dim, layout="half"),
            RoPE(last, self.dim, layout="half", trailing=True),
        )

    def points(self, *sizes: int) -> Points:
        """Return the positions of the patches of an image or video in the model's order.

        `sizes` are rows and columns of patches, or frames, rows and columns; the frame is an axis
        only if the model rotates by the frame.
        """
        from posenc.core.positions import centred

        if self.scaled:
            return centred(*sizes)
        points = self.order.points(*sizes)
        points = points if "frame" in self.axes else points[:, -2:]
        return self.step * points + self.first if self.step != 1 else points + self.first


@dataclass(frozen=True)
class PatchOffsets:
    """Settings of `MViTv2`: scores of queries with learned vectors for row and column offsets."""

    kind = "mvitv2"
    dim: int
    size: tuple[int, int]  # rows and columns of patches of the image, or of a window

    def encoding(self) -> MViTv2:
        from posenc.encodings.relative.mvitv2 import MViTv2

        return MViTv2(self.dim, self.size)


@dataclass(frozen=True)
class PatchBias:
    """Settings of `Swin`: a learned bias for each head and each offset between patches."""

    kind = "swin"
    heads: int
    size: tuple[int, int]  # rows and columns of patches of a window, or of the image
    class_token: bool = False  # True: three more numbers for each head, as in BEiT
    shared: bool = False  # True: all layers share one table

    def encoding(self) -> Swin:
        from posenc.encodings.bias.swin import Swin

        return Swin(self.heads, self.size, self.class_token)


@dataclass(frozen=True)
class PatchNetwork:
    """Settings of `SwinV2`: a small network computes the bias from the offset between patches."""

    kind = "swin-v2"
    heads: int
    size: tuple[int, int]  # rows and columns of patches of a window
    trained: tuple[int, int]  # those of the training, by which offsets are divided

    def encoding(self) -> SwinV2:
        from posenc.encodings.bias.swin_v2 import SwinV2

        rows, columns = self.size
        return SwinV2(self.heads, self.trained, (rows - 1, columns - 1))


@dataclass(frozen=True)
class QueryScale:
    """Settings of a query scale that grows with position (`Temperature`), as in Llama 4."""

    every: int
    strength: float
    start: int

    def encoding(self) -> Encoding:
        from posenc.encodings.temperature import Temperature

        return Temperature(self.every, self.strength, self.start)


OfPatches = PatchRotary | PatchOffsets | PatchBias | PatchNetwork
OfLayer = Rotary | Fourier | Slopes | Buckets | Disentangled | Projected | OfPatches


@dataclass(frozen=True)
class Layer:
    """Positional encoding and attention settings of one layer.

    Cross-attention of a decoder uses the same scale, no encoding and no mask.
    """

    # None: NoPE
    encoding: OfLayer | None = None
    kind: str = "full_attention"  # type of the layer in transformers' terms
    attends: bool = True  # False: a convolution or a recurrence
    # Number of tokens that a query sees, itself included; None: all. If `kind` is
    # "window_attention", the side of the windows of patches within which layers attend
    window: int | None = None
    shift: int = 0  # rows and columns by which windows of patches are shifted (Swin)
    temperature: QueryScale | None = None
    causal: bool = True  # False: a query also sees later keys
    scale: float | None = None  # softmax scale; None: the encoding's own, usually 1/√channels
    softcap: float | None = None  # c of `attend(…, softcap=)`: scores s become c tanh(s/c)
    sinks: bool = False  # True: each head has a learned sink logit, `attend(…, sinks=)`
    unsupported: str = ""  # a verb phrase for an operation that `attend` lacks

    def build(self, length: int | None = None, layout: Layout | None = None) -> Encoding:
        """Return the encoding module for this layer, with the layer's softmax scale."""
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
        """Return the mask to pass to `attend`; None if a query sees all keys.

        Raises ValueError for chunked attention without positions.
        """
        from posenc.core import masks

        if self.window is None:
            return masks.causal(pos, k_pos) if self.causal else None
        if self.kind in ("chunked_attention", "window_attention"):
            if pos is None:
                raise ValueError(
                    f"`pos` must be the positions of the queries for a layer with"
                    f" {self.kind.replace('_', ' ')}, got None. Pass `pos`."
                )
            k_pos = pos if k_pos is None else k_pos
            near = masks.documents(*(self._part(one, self.window) for one in (pos, k_pos)))
        else:
            near = masks.window(self.window, pos, k_pos)
        return near & masks.causal(pos, k_pos) if self.causal else near

    def _part(self, pos: Tensor, size: int) -> Tensor:
        """Return an integer for each token or patch: the index of the chunk or window it is in."""
        if self.kind == "chunked_attention":
            return pos // size
        from posenc.biases.axes import on_a_line

        first = self.encoding.first if isinstance(self.encoding, PatchRotary) else self.shift
        return on_a_line(((pos[..., -2:] - first) // size).long(), "windows")


@dataclass(frozen=True)
class Table:
    """Settings of a learned position table, which is added to the embeddings (`Learned`)."""

    kind = "learned"
    rows: int  # rows for positions 0 … rows − 1
    width: int
    offset: int = 0  # stored rows before the row of position 0

    def encoding(self) -> Learned:
        from posenc.encodings.additive.learned import Learned

        return Learned(self.rows, self.width)


@dataclass(frozen=True)
class PatchTable:
    """Settings of a learned position table for image patches, which is added to the embeddings.

    A model with `resized` interpolates the rows for an image of another size.
    """

    kind = "learned"
    grid: tuple[int, int]  # stored rows and columns of patches
    width: int
    resized: Resizing = ""  # "": an image must have the size of the grid
    before: int = 0  # stored rows before those of patches, such as that of a class token
    after: int = 0  # stored rows after them
    # True: the table is resized to (columns, rows) and then read for patches row by row
    exchanged: bool = False
    order: PatchOrder = PatchOrder()

    @property
    def rows(self) -> int:
        """Number of rows in the table, for patches and for other tokens, such as a class token."""
        return self.before + self.grid[0] * self.grid[1] + self.after

    def encoding(self) -> Learned:
        from posenc.encodings.additive.learned import Learned

        return Learned(self.rows, self.width)

    def rows_of(self, table: Tensor, *sizes: int) -> Tensor:
        """Return each image patch's position vector, (token, channel), in the model's order.

        - `table`: all stored rows, (row, channel)
        - `sizes`: rows and columns of patches of the image, or frames, rows and columns

        Raises ValueError for an image of another size than the grid if the model resizes none.
        """
        from posenc.encodings.additive.resampling import resized

        (rows, columns), points = sizes[-2:], self.order.points(*sizes)
        cells = table[self.before : self.before + self.grid[0] * self.grid[1]]
        to = (columns, rows) if self.exchanged else (rows, columns)
        fitted = resized(cells.unflatten(0, self.grid), to, self.resized).flatten(0, 1)
        return fitted[points[:, -2] * columns + points[:, -1]]


@dataclass(frozen=True)
class PatchWaves:
    """Settings of sinusoids of a patch's row and column (`SinusoidalGrid`)."""

    kind = "sinusoidal"
    width: int
    base: float = 10_000.0
    halves: bool = False  # all sines of an axis before its cosines; False: alternating
    axes: tuple[str, ...] = ("row", "column")  # in the order of their channels
    normalised: bool = False  # True: rows and columns are scaled so that an image spans 2π
    first: float = 0.0  # number of the first row and column, before they are scaled
    each_layer: bool = False  # True: added to queries and keys of each layer, not to embeddings

    def encoding(self) -> SinusoidalGrid:
        from posenc.encodings.additive.sinusoidal_grid import SinusoidalGrid

        layout: Layout = "half" if self.halves else "interleaved"
        return SinusoidalGrid(self.width, len(self.axes), self.base, layout)

    def points(self, *sizes: int) -> Points:
        """Return the coordinates of all patches, row by row, with axes ordered as in `axes`."""
        from math import pi

        import torch

        from posenc.core.positions import grid

        points = grid(*sizes) + self.first
        if self.normalised:
            # DETR adds 10⁻⁶ to the divisor
            points = points / (torch.tensor(sizes) + 1e-6) * (2 * pi)
        return points[:, [AXES.index(axis) + len(sizes) - 3 for axis in self.axes]]


@dataclass(frozen=True)
class PointWaves:
    """Settings of Fourier features of points in an image, with random directions, as in SAM."""

    kind = "sinusoidal"
    width: int

    def rows_of(self, directions: Tensor, points: Tensor) -> Tensor:
        """Return the Fourier features, sines and cosines, of points in an image, (…, channel).

        - `directions`: stored matrix (2, width / 2), in turns per half an image
        - `points`: (…, 2), column and row from 0 to 1 across the image
        """
        import torch

        angles = 2 * torch.pi * ((2 * points - 1) @ directions)
        return torch.cat((angles.sin(), angles.cos()), -1)


@dataclass(frozen=True)
class Waves:
    """Settings of sinusoids, which are added to the embeddings (`Sinusoidal`)."""

    kind = "sinusoidal"
    width: int
    base: float = 10_000.0
    halves: bool = False  # all sines before all cosines; False: alternating
    cosines_first: bool = False  # sines and cosines are exchanged
    closed: bool = False  # exponents of `base` are j / (d/2 − 1), up to 1, instead of 2j/d
    rows: int | None = None
    offset: int = 0  # number that position 0 has in the sinusoids

    def encoding(self) -> Sinusoidal:
        from posenc.encodings.additive.sinusoidal import Sinusoidal

        pairs = self.width // 2
        base = self.base ** (pairs / (pairs - 1)) if self.closed else self.base
        layout: Layout = "half" if self.halves else "interleaved"
        return Sinusoidal(self.width, base, layout, self.cosines_first)


@dataclass(frozen=True)
class Convolution:
    """Settings of a convolution over audio frames, whose result is added to the embeddings.

    Each frame receives its order from the frames within half a kernel on each side.
    """

    kind = "convolution"
    width: int
    kernel: int  # frames
    groups: int
    count: int = 1  # convolutions in sequence


Added = Table | Convolution | PatchTable | Waves | PatchWaves | PointWaves
# Positions of these are places in an image or video, not tokens of a text
IN_IMAGES = PatchTable, PatchWaves, PointWaves


class LayerEncodings(list["Encoding"]):
    """List of the encodings of a model's layers, with the position table as `embedding`."""

    def __init__(self, encodings: Iterable[Encoding], embedding: Added | None):
        super().__init__(encodings)
        self.embedding = embedding


@dataclass(frozen=True)
class Spec:
    """Specification of a model: its layers, its position table, and its nested parts.

    `notes` list assumptions, ignored keys and suspicious values; `doubts` those notes that leave
    the behaviour at any text length uncertain.
    """

    model: str  # `model_type` of the config
    kind: str  # `kind` of its encodings; one of `families.Kind` if there are none
    layers: tuple[Layer, ...] = ()
    embedding: Added | None = None
    heads: int = 0
    groups: int = 0  # heads of keys and values
    context: int | None = None  # tokens that the config states as its context
    trained: int | None = None  # tokens of the training before context extension
    notes: tuple[str, ...] = field(default=(), compare=False)
    doubts: tuple[str, ...] = field(default=(), compare=False)
    parts: Mapping[str, Spec] = field(default_factory=dict)  # nested configs, encoder and decoder
    applied: tuple[str, ...] = ()  # posenc encodings that were saved in place of the model's own

    def __repr__(self) -> str:
        kinds = len(set(self.layers))
        parts = f", parts {', '.join(self.parts)}" if self.parts else ""
        return f"Spec({self.model!r}, {len(self.layers)} layers of {kinds} kinds{parts})"

    def _repr_html_(self) -> str:
        """Return HTML for a notebook: sizes, the position table, the distinct layers, and notes."""
        counts = {
            "heads": self.heads,
            "key heads": self.groups,
            "context": self.context,
            "trained length": self.trained,
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

    def encodings(self, length: int | None = None, layout: Layout | None = None) -> LayerEncodings:
        """Return the encoding of each layer that attends, bottom first; equal layers share one.

        length: tokens of the text, needed if frequencies depend on it
        layout: needed if the config does not determine it

        Encodings include the softmax scale. Pass the other settings of a layer to `attend`:
        `layer.mask()`, `layer.softcap`, and if `layer.sinks` the model's weights as `sinks`.
        `layer.unsupported` names an operation that `attend` lacks.

        A table that is added to embeddings is not in the list but its attribute `embedding`.
        `adapter.apply` rejects a list with a table, since it would switch the table off.
        """
        built = {layer: layer.build(length, layout) for layer in dict.fromkeys(self.layers)}
        encodings = (built[layer] for layer in self.layers if layer.attends)
        return LayerEncodings(encodings, self.embedding)

    @property
    def text_stack(self) -> Spec:
        """Specification of the text model: this specification, or one of its `parts`."""
        return self.parts[self.text_keys[0]].text_stack if self.text_keys else self

    @property
    def text_keys(self) -> tuple[str, ...]:
        """Keys of `parts` that lead to the text model, such as ("text_config",), or ()."""
        if self.layers or self.embedding or not self.parts:
            return ()
        name = next((name for name in TEXT if name in self.parts), next(iter(self.parts)))
        return (name, *self.parts[name].text_keys)

    @property
    def stored(self) -> tuple[int, int] | None:
        """Shape (rows, width) of the position table in the weights; None if there is no table."""
        match self.embedding:
            case Table(rows=int(rows)) | Waves(rows=int(rows)):
                return rows + self.embedding.offset, self.embedding.width
            case PatchTable():
                return self.embedding.rows, self.embedding.width
        return None

    @property
    def rotary(self) -> tuple[Rotary, ...]:
        """Rotations (RoPE) of the layers, without duplicates."""
        turns = (layer.encoding for layer in self.layers if isinstance(layer.encoding, Rotary))
        return tuple(dict.fromkeys(turns))

    @property
    def global_rotary(self) -> tuple[Rotary, ...]:
        """The different rotations (RoPE) of the layers that have no window."""
        unlimited = [layer for layer in self.layers if layer.window is None]
        return replace(self, layers=tuple(unlimited)).rotary


def _stated(part: Any) -> str:
    """Format an encoding or layer for `repr`, without the fields that have default values.

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
