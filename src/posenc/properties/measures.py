"""Measurements of the properties of an encoding, made only by calling its hooks.

A property returns its defect, which is 0 if it holds exactly and otherwise the size of the
violation, and a sentence with the witness: which positions, which offset. Tests compare the defect
with a tolerance; reports and plots show the same number. Some properties are measured on rows, the
encoded form of one fixed vector at each position. An encoding without rows, for instance a bias, is
"not applicable" for these.

An encoding that depends on earlier tokens (FoX, CoPE) has its properties only under a causal mask,
and declares this with `causal = True`. All its properties are measured under that mask, on visible
pairs only, because other scores are never used. All other encodings are measured without a mask,
which is the stricter test.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import wraps
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from posenc.core.encoding import Encoding
from posenc.core.positions import grid
from posenc.properties.probe import Probe, copied
from posenc.support.arguments import brief
from posenc.support.notebook import table
from posenc.support.numbers import number

LOWERED = str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉")
TOLERANCE = 1e-4
FAR = 10**6
FARTHEST = 10**10
NEAREST = 4096  # pairs of rows whose distance is computed exactly, of those that may be the closest


@dataclass(frozen=True)
class Finding:
    """A measured property: `defect` is near 0 if the property holds, and `why` is the evidence."""

    defect: float
    why: str
    applicable: bool = True

    @property
    def holds(self) -> bool | None:
        """True if the defect is small, False if it is large or NaN, None if not applicable."""
        return self.defect < TOLERANCE if self.applicable else None

    @property
    def mark(self) -> str:
        return {True: "✓", False: "✗", None: "–"}[self.holds]

    def __str__(self) -> str:
        return f"{self.mark} {self.why}"


class Findings(dict[str, Finding]):
    """The measured properties by name, printed as a table."""

    def __str__(self) -> str:
        return "\n".join(f"{name:20} {finding}" for name, finding in self.items())

    __repr__ = __str__

    def _repr_html_(self) -> str:
        rows = [
            (name.replace("_", " "), finding.mark, finding.why) for name, finding in self.items()
        ]
        return table(["property", "holds", "measured"], rows)


@runtime_checkable
class Property(Protocol):
    __name__: str

    def __call__(self, probe: Probe, /) -> Finding: ...


TOO_FEW = Finding(float("nan"), "not applicable: the encoding accepts too few positions", False)
FLAT = Finding(1.0, "flat: distance makes no difference")
ONE_SIDED = Finding(float("nan"), "not applicable: queries see only earlier tokens", False)
NO_ROWS = Finding(float("nan"), "not applicable: the encoding has no position vectors", False)


def of_probe(measure: Property) -> Property:
    """Decorate a property function to raise TypeError if its argument is not a `Probe`."""

    @wraps(measure)
    def measured(probe: Probe) -> Finding:
        if not isinstance(probe, Probe):
            raise TypeError(
                f"`probe` must be a `Probe` for `{measure.__name__}`, got {brief(probe)}. Pass"
                " `properties.Probe(encoding)`, or call `properties.check(encoding)` to measure"
                " all properties."
            )
        return measure(probe)

    return measured


@of_probe
def unique_positions(probe: Probe) -> Finding:
    """No two of the first 1,024 position vectors are closer than 10⁻⁴ per channel (RMS)."""
    rows = probe.first_rows[0]
    if rows is None:
        return NO_ROWS
    smallest, (p, q) = _closest(rows)
    pos = probe.line(len(rows)).tolist()
    two = f"{_named(pos[p])} and {_named(pos[q])}"
    why = f"the closest vectors, of positions {two}, differ by {number(smallest, 2)} per channel"
    return Finding(max(1 - smallest / 1e-4, 0.0), why)  # in this order NaN stays NaN


@of_probe
def bounded(probe: Probe) -> Finding:
    """The largest vector entry at far positions is at most 1.5 times that at near positions.

    Near are the first 1,024 positions.

    Far away is position one million, or the last accepted ones. Rows of queries and of keys are
    compared separately.
    """
    near = probe.first_rows
    if near[0] is None:
        return NO_ROWS
    try:
        place, far = "at one million", probe.rows_of_both(probe.line(1024, FAR))
    except IndexError:
        end = probe.line(min(1024, probe.limit), max(0, probe.limit - 1024))
        place, far = "at the last positions", probe.rows_of_both(end)
    worst = Finding(0.0, "")
    for what, some, rows in zip(("", "keys: "), near, far, strict=True):
        if some is None or rows is None:
            continue
        largest, before = rows.abs().max().item(), some.abs().max().item()
        defect = max(largest / before - 1.5, 0.0) if before else 0.0
        if not worst.why or defect > worst.defect or defect != defect:
            why = f"{number(largest)} {place}, {number(before)} in the first {len(some):,}"
            worst = Finding(defect, f"{what}largest entry {why}")
    return worst


@of_probe
def norm_constant(probe: Probe) -> Finding:
    """The vectors of the first 1,024 positions all have the same norm."""
    rows = probe.first_rows[0]
    if rows is None:
        return NO_ROWS
    norms = rows.norm(dim=-1)
    low, high = int(norms.argmin()), int(norms.argmax())
    pos = probe.line(len(rows)).tolist()
    why = (
        f"norm {number(norms[low], 4)} at position {_named(pos[low])},"
        f" {number(norms[high], 4)} at {_named(pos[high])}"
    )
    spread = ((norms[high] - norms[low]) / (norms.mean() or 1.0)).item()
    if spread < TOLERANCE:
        why = f"norm {number(norms.mean(), 4)} everywhere"
    return Finding(spread, why)


@of_probe
def linear_shift(probe: Probe) -> Finding:
    """PE(p + k) = Mₖ PE(p) for all p, where Mₖ is orthogonal and M_a M_b = M_(a+b).

    M is fitted to random positions, in the space that the rows span, and tested on others.
    """
    first_row = probe.rows(probe.at(0, 1))
    if first_row is None:
        return NO_ROWS
    if probe.limit < 8:
        return TOO_FEW
    a, b, tried = (3, 5, 256) if probe.limit > 16 else (1, 2, 256)
    needed = 2 * first_row.shape[-1] + tried
    shape = probe.at(0, needed).shape
    p = torch.randint(0, max(1, probe.limit - a - b), shape, generator=probe.random)
    here, at_a = (_not_none(probe.rows(p + k)) for k in (0, a))
    if not (here.isfinite().all() and at_a.isfinite().all()):
        return Finding(float("inf"), "position vectors are not finite")
    if not (here.any() or at_a.any()):
        return Finding(0.0, "all position vectors are 0, so every Mₖ maps PE(p) to PE(p + k)")
    _, size, basis = torch.linalg.svd(here[tried:], full_matrices=False)
    basis = basis[size > 1e-5 * size[0]].mT  # (channel, rank): the space of all rows
    coordinates = here[tried:] @ basis
    move = torch.linalg.lstsq(coordinates, at_a[tried:]).solution
    step = (at_a - here)[:tried].norm(dim=-1).mean()
    miss = (here[:tried] @ basis @ move - at_a[:tried]).norm(dim=-1) / step.clamp_min(1e-9)
    worst = int(miss.argmax())
    of_a, of_b, both = (f"M{n}".translate(LOWERED) for n in (a, b, a + b))
    if not miss[worst] < TOLERANCE:
        where, steps = _named(p[worst].tolist()), number(miss[worst], 2)
        why = f"PE({where} + {a}) differs from the best {of_a} PE({where}) by {steps} steps"
        return Finding(miss[worst].item(), why)
    others = [_not_none(probe.rows(p + k))[tried:] for k in (b, a + b)]
    m_b, m_ab = (torch.linalg.lstsq(coordinates, to).solution @ basis for to in others)
    m_a = move @ basis
    bent = (m_a @ m_a.mT - torch.eye(len(m_a), dtype=m_a.dtype)).abs().max().item()
    apart = (m_a @ m_b - m_ab).abs().max().item()
    if bent >= TOLERANCE:
        why = f"{of_a} is not orthogonal: M Mᵀ differs from 1 by {number(bent, 2)}"
    elif apart >= TOLERANCE:
        why = f"{of_a} {of_b} differs from {both} by {number(apart, 2)}"
    else:
        why = f"Mₖ is a rotation in {len(m_a)} dimensions, and {of_a} {of_b} = {both}"
    return Finding(max(miss[worst].item(), bent, apart), why)


@of_probe
def shift_invariant(probe: Probe) -> Finding:
    """Shifting the whole text, along each axis or along all of them, does not change scores.

    The shifts are 17 and 2,000, or the largest possible.
    """
    pos, axes = probe.line(probe.tokens), probe.encoding.axes
    before, room = probe.scores(pos, pos), max(1, probe.limit - probe.tokens)
    ways = [torch.ones(axes).long(), *torch.eye(axes).long()] if axes > 1 else [torch.tensor(1)]
    finding = TOO_FEW
    for by in (min(17, room), min(2000, room)):
        for way in ways:
            after = probe.scores(pos + by * way, pos + by * way)
            what = f"shifting the text by {_named((by * way).tolist())}"
            finding = _unchanged(before, after, pos, pos, what)
            if not finding.defect < TOLERANCE:
                return finding
    return finding


@of_probe
def symmetric(probe: Probe) -> Finding:
    """Exchanging the positions of a query and a key does not change their score."""
    if probe.causal:
        return ONE_SIDED
    finding = TOO_FEW
    for p, p2 in ((0, 1), (0, 3), (2, 7), (5, 6), (1, 8), (3, 2000)):
        if p2 >= probe.limit:
            break
        here, there = probe.at(p, probe.tokens), probe.at(p2, probe.tokens)
        scored = probe.scores(here, there), probe.scores(there, here)
        finding = _unchanged(*scored, here, there, "exchanging their positions")
        if not finding.defect < TOLERANCE:
            break
    return finding


@of_probe
def decaying(probe: Probe) -> Finding:
    """The score of two tokens of equal content falls with their distance, and never rises.

    The score must not rise for any weights, so each learned tensor in turn is also multiplied by 8
    and by −8. Otherwise random initial weights would decide the outcome.
    """
    finding = _decays(probe)
    if not finding.applicable or not finding.defect < TOLERANCE:
        return finding
    for what, varied in _variations(probe):
        of_varied = _decays(varied)
        if of_varied is not FLAT and not of_varied.defect < TOLERANCE:
            return Finding(of_varied.defect, f"{of_varied.why} {what}")
    return finding


def _variations(probe: Probe) -> Iterator[tuple[str, Probe]]:
    for name, parameter in probe.encoding.named_parameters():
        if parameter.requires_grad:
            for factor in (8, -8):
                encoding = copied(probe.encoding)
                encoding.get_parameter(name).data.mul_(factor)
                yield f"with `{name}` times {number(factor)}", probe.with_encoding(encoding)


def _decays(probe: Probe) -> Finding:
    reach = min(128, (probe.limit - 1) // 2)
    if not reach:
        return TOO_FEW
    curves = torch.stack(list(_curves(probe, reach)))
    if not curves.isfinite().all():
        return Finding(float("inf"), "scores are not finite")
    span = curves.amax(-1) - curves.amin(-1)
    # The scores of one query may be equal, for instance at position 0 if its row is 0
    flat = span < 1e-9
    steps = curves.diff()[~flat] / span[~flat].unsqueeze(-1)
    rises = (steps > 1e-6).any(0).nonzero()
    if flat.any() and not len(rises):
        return FLAT
    if not len(rises):
        return Finding(0.0, f"falls all the way to offset {steps.shape[-1]}")
    return Finding(steps.max().item(), f"first rises at offset {rises[0].item() + 1}")


@of_probe
def norm_preserving(probe: Probe) -> Finding:
    """The norms of embeddings and of keys do not change.

    A score is q · M k plus a bias. M is computed from scores of large q and k, so that the result
    does not depend on which hook implements the formula.
    """
    pos = probe.line(probe.tokens)
    x = probe.x[: probe.tokens]
    changed = (probe.embed(x, pos).norm(dim=-1) / x.norm(dim=-1) - 1).abs().max().item()
    if not changed < TOLERANCE:
        return Finding(changed, f"the norm of an embedding changes by {changed:.2%}")
    seen = probe.seen(len(pos), len(pos))
    ratio = (probe.keys_as_seen(pos).norm(dim=-1) - 1).abs().masked_fill(~seen, 0)
    defect, (_, i, j) = _extreme(ratio, largest=True)
    if defect < TOLERANCE:
        return Finding(defect, "embeddings, queries and keys keep their norm")
    p, r = (_named(pos[n].tolist()) for n in (i, j))
    return Finding(defect, f"the norm of a key at {r} changes by {defect:.2%} for a query at {p}")


@of_probe
def any_length(probe: Probe) -> Finding:
    """Positions of one million and of ten billion are accepted, and give finite scores.

    The second exceeds 32 bits, so every binary code has an end before it.
    """
    for start in (FAR, FARTHEST):
        pos = probe.line(probe.tokens, start)
        try:
            far = probe.scores(pos, pos)
        except IndexError as error:
            return Finding(float("inf"), str(error))
        if not far.isfinite().all():
            return Finding(float("inf"), f"scores at position {start:,} are not finite")
    why = f"finite at {FAR:,} and {FARTHEST:,}, which does not imply quality at long lengths"
    return Finding(0.0, why)


@of_probe
def length_independent(probe: Probe) -> Finding:
    """Appending tokens does not change the scores of earlier tokens, so keys can be cached."""
    short, long = probe.line(2 * probe.tokens)[: probe.tokens], probe.line(2 * probe.tokens)
    alone = probe.scores(short, short)
    company = probe.scores(long, long)[:, : probe.tokens, : probe.tokens]
    return _unchanged(alone, company, short, short, f"appending {probe.tokens} tokens")


@of_probe
def order_sensitive(probe: Probe) -> Finding:
    """Moving the middle token to the front changes scores, so the encoding makes order visible.

    The token is moved together with its position in the sequence, because an encoding may depend
    on the order of tokens in memory.
    """
    pos = probe.line(min(9, 2 * probe.tokens))
    order = torch.arange(len(pos))
    order[: len(pos) // 2 + 1] = order[: len(pos) // 2 + 1].roll(1)
    place = order.argsort()  # new index of each token
    before, after = probe.scores(pos, pos), probe.scores(pos, pos, order)
    after = after[:, place][:, :, place]
    seen = probe.seen(len(pos), len(pos))
    hidden = ~(seen & seen[place][:, place])  # masked in either order
    before, after = before.masked_fill(hidden, 0), after.masked_fill(hidden, 0)
    moved = _unchanged(before, after, pos, pos, "").defect
    why = f"moving the middle token to the front changes scores by {moved:.2g} times their spread"
    return Finding(0.0 if moved > 1e-3 else 1.0, why)


@of_probe
def learned(probe: Probe) -> Finding:
    """The encoding has parameters to train."""
    count = sum(p.numel() for p in probe.encoding.parameters() if p.requires_grad)
    return Finding(0.0 if count else 1.0, f"{count:,} parameters")


@of_probe
def several_axes(probe: Probe) -> Finding:
    """A position may be a point (a row and a column), and each coordinate changes scores."""
    axes = max(2, probe.encoding.axes)
    pos = grid(3, *[2] * (axes - 1))[: probe.tokens]
    try:
        before = probe.scores(pos, pos)
        for axis in range(axes):
            moved = pos.clone()
            moved[::2, axis] += 3
            after = probe.scores(moved, moved)
            if not _unchanged(before, after, pos, pos, "").defect > 1e-3:
                return Finding(1.0, f"coordinate {axis} of {axes} makes no difference")
    except (ValueError, IndexError, RuntimeError, TypeError):
        return Finding(1.0, "a position is one number")
    return Finding(0.0, f"each of {axes} coordinates makes a difference")


ALL: tuple[Property, ...] = (
    unique_positions, bounded, norm_constant, linear_shift, shift_invariant, symmetric, decaying,
    norm_preserving, any_length, length_independent, order_sensitive, learned, several_axes,
)  # fmt: skip


def check(
    encoding: Encoding,
    dim: int | None = None,
    heads: int | None = None,
    width: int | None = None,
    seed: int = 0,
    causal: bool | None = None,
) -> Findings:
    """Measure every property of an `Encoding`, of this library or of your own.

    - `encoding`: the encoding; a copy in float64 is measured
    - `dim`: channels of a head; None: `encoding.dim`, or 16
    - `heads`: query heads; None: `encoding.heads`, or 4
    - `width`: channels of an embedding; None: `encoding.width`, or dim · heads
    - `seed`: seed of the random queries, keys and embeddings
    - `causal`: True uses a causal mask; None: `encoding.causal`

    Returns findings by name. Raises ValueError for an encoding that does not run at these sizes.

    >>> from posenc import ALiBi
    >>> print(check(ALiBi(8))["decaying"])
    ✓ falls all the way to offset 128
    """
    probe = Probe(encoding, dim, heads, width, seed, causal)
    if probe.limit < 2:
        raise ValueError(
            f"`encoding` must accept at least two positions, got {type(encoding).__name__}, which"
            " accepts only one position."
        )
    try:
        pos = probe.line(2)
        probe.scores(pos, pos)
    except (RuntimeError, ValueError, IndexError) as error:
        name = type(encoding).__name__
        if "dtype" in str(error) or "scalar type" in str(error):
            raise ValueError(
                f"the hooks of {name} must return float64 for inputs of float64. Create tensors"
                f" with `dtype=q.dtype`. The error: {error}"
            ) from error
        raise ValueError(
            f"{name} could not be measured with `dim`={probe.dim}, `heads`={probe.heads} and"
            f" `width`={probe.width}. Pass the sizes for which the encoding was created. The"
            f" error: {error}"
        ) from error
    with torch.no_grad():
        return Findings({measure.__name__: measure(probe) for measure in ALL})


def _unchanged(before: Tensor, after: Tensor, q_pos: Tensor, k_pos: Tensor, doing: str) -> Finding:
    """Return a finding: the largest change of any score, in standard deviations of the scores."""
    spread = before.std().item() or 1.0
    change, (head, i, j) = _extreme((after - before).abs(), largest=True)
    p, r = _named(q_pos[i].tolist()), _named(k_pos[j].tolist())
    was, now = before[head, i, j].item(), after[head, i, j].item()
    defect = change / spread
    if defect < TOLERANCE:
        return Finding(defect, f"{doing} changes no score")
    return Finding(
        defect, f"{doing} changes the score of {p} and {r} from {number(was)} to {number(now)}"
    )


def _curves(probe: Probe, reach: int) -> Iterator[Tensor]:
    """Yield the scores of a query with keys 0, 1, 2 … tokens away, by axis, head and direction."""
    for axis in range(probe.encoding.axes):
        pos = probe.at(reach, 2 * reach + 1)
        (pos if pos.ndim == 1 else pos[:, axis]).copy_(torch.arange(2 * reach + 1))
        for head in probe.alike(pos):
            # Steps of 9, so that not all queries are at powers of two
            for start in range(0, reach + 1, 9):
                stop = start + reach
                yield head[stop, start : stop + 1].flip(0)
                if not probe.causal:
                    yield head[start, start : stop + 1]


def _extreme(values: Tensor, largest: bool) -> tuple[float, tuple[int, ...]]:
    """Return the largest or smallest value and the index of the first value equal to it.

    Otherwise the index would depend on the rounding of the processor.
    """
    extreme = values.amax() if largest else values.amin()
    alike = torch.isclose(values, extreme, rtol=1e-6, atol=0.0, equal_nan=True)
    index = alike.nonzero()[0].tolist()  # not `torch.unravel_index`, which imports sympy
    return values[tuple(index)].item(), tuple(index)


def _closest(rows: Tensor) -> tuple[float, tuple[int, ...]]:
    """Return the smallest RMS distance between two rows of a matrix, and the indices of both."""
    square = rows.square().sum(-1)
    # |x − y|² = |x|² + |y|² − 2 xy, a quick product of matrices, is off by some 10⁻¹⁶ |x|²
    rough = (square + square.unsqueeze(-1) - 2 * rows @ rows.mT).fill_diagonal_(float("inf"))
    first, second = (~(rough > rough.amin() * (1 + 1e-5) + 1e-12 * square.amax())).nonzero(
        as_tuple=True
    )
    few = slice(NEAREST)
    apart = (rows[first[few]] - rows[second[few]]).norm(dim=-1) / rows.shape[-1] ** 0.5
    smallest, (place,) = _extreme(apart, largest=False)
    return smallest, (int(first[place]), int(second[place]))


def _not_none(rows: Tensor | None) -> Tensor:
    assert rows is not None
    return rows


def _named(position: int | list[int]) -> str:
    return f"{position:,}" if isinstance(position, int) else f"({', '.join(map(str, position))})"
