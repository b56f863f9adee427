"""Find the fault of any implementation of RoPE from the queries and keys that it returns.

`apply(q, k, positions)` is called with random queries and keys. A pair of channels z that is
rotated comes out as z·m, with the same number m for any content; so m is measured for each pair,
head and position, and compared with the m of the config and of each known fault:

    m = gain · exp(i a),    a = p θ

Faults are variants of one part of the formula: the channels of a pair, θ, the position p, the gain,
and numbers rounded to 16 bits. All combinations of variants are computed, and the one with the
fewest faults that explains the measured m is reported. If none does, θ or the positions are read
off m and described.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import Any

from torch import Tensor

from posenc.core.frequencies import Layout, checked
from posenc.encodings.rotary.theta import yarn_gain
from posenc.lab.vectors import known_faults
from posenc.lab.vectors.known_faults import EXCHANGED, RotationFault, Rounding
from posenc.lab.vectors.measured import (
    CLOSE,
    off,
    position_fault,
    positions,
    slack,
    theta_fault,
    thetas,
)
from posenc.lab.vectors.observed import Apply, Observed, Pairs, ProbePositions
from posenc.models.config.parse import specify
from posenc.models.config.spec import Fourier, Rotary, Spec
from posenc.support.arguments import brief

REORDERED = (
    "The channels of a pair leave in another order, in queries and keys alike: scores are the same."
)
# Difference of a channel of a query or key, of typical size 1, that rounding in float32 can cause
ROUGH = 0.05
STAYS = "θ of an earlier, longer text is kept"


@dataclass(frozen=True)
class Verdict:
    """The result of testing an implementation of RoPE. `findings` lists its faults.

    - `error`: largest error of a rotated pair of length 1, against the config
    - `notes`: sentences about what is unusual and no fault
    """

    findings: tuple[RotationFault, ...]
    error: float
    notes: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        return not self.findings

    def to_json(self) -> dict[str, Any]:
        return {
            "format": "posenc.against/1",
            "passed": self.passed,
            "error": self.error,
            "findings": [finding._asdict() for finding in self.findings],
            "notes": [*self.notes],
        }


def against(
    apply: Apply,
    config: Mapping[str, Any],
    length: int | None = None,
    layer: int | None = None,
    layout: Layout | None = None,
) -> Verdict:
    """Find the faults of a RoPE implementation by comparing its outputs with correct ones.

    - `apply`: called with q and k, (batch, head, token, channel) in float32, and whole positions,
      (batch, token), or (batch, token, axis) for a model whose config has `mrope_section`; returns
      the rotated q and k, as torch or NumPy arrays. If it refuses (batch, token, axis), it is
      called with (axis, batch, token)
    - `config`: the values of a config.json
    - `length`: tokens of the text, where θ depends on it; None: those that the config allows, and
      those of the training, before and after
    - `layer`: index of the layer that is meant; None: the first that rotates and sees all tokens
    - `layout`: "half" or "interleaved", for programs that reorder the weights when they load them;
      None: that of the config's model

    The weights that mix the waves of FoPE must be unit matrices in `apply`.

    Raises ValueError for a config whose layers do not rotate, and for an output of another shape.

    >>> config = {"model_type": "llama", "hidden_size": 128, "num_attention_heads": 2}
    >>> against(lambda q, k, positions: (q, k), config).findings[0].name
    'queries and keys are not rotated'
    """
    spec = specify(config, "").text_stack
    rotary, still = _layer(spec, layer)
    rotary = replace(rotary, layout=rotary.layout if layout is None else checked(layout))
    test = partial(_tested, apply, rotary, spec, still)
    longest = length or spec.context or 4096
    if rotary.by_length:
        return _tested_by_length(test, rotary, longest, shorter=length is None)
    try:
        verdict = test(longest)
    except ValueError:
        # A table of cos and sin may refuse positions that the config does not allow
        verdict = test(longest, beyond=False)
        refused = f"Positions from {longest:,} on are refused, and were not tested."
        return replace(verdict, notes=(*verdict.notes, refused))
    if verdict.findings and longest == spec.context:
        within = test(longest, beyond=False)
        if within.passed:
            beyond = (f"{fault.name}. {fault.sentence}" for fault in verdict.findings)
            notes = (f"Beyond the {longest:,} tokens of the config, {said}" for said in beyond)
            return replace(within, notes=(*within.notes, *notes))
    return verdict


def _tested(
    apply: Apply, rotary: Rotary, spec: Spec, still: complex, length: int, beyond: bool = True
) -> Verdict:
    """Test an implementation at positions below `length`, and at larger ones if `beyond`."""
    observed = Observed(apply, ProbePositions.of(rotary, length, beyond), rotary, spec)
    return _verdict(observed, rotary, spec, length, still)


def _tested_by_length(
    test: Callable[..., Verdict], rotary: Rotary, length: int, shorter: bool
) -> Verdict:
    """Test an implementation whose θ depends on the text length, such as dynamic NTK.

    - `shorter`: also test a text of the trained length, before and after the long one
    """
    short = min(rotary.trained, length)
    if not shorter or short == length:
        return test(length, beyond=False)
    before, long, after = (test(n, beyond=False) for n in (short, length, short))
    findings = {fault.name: fault for fault in (*before.findings, *long.findings)}
    if before.passed and not after.passed:
        said = f"A text of {short:,} tokens is right before one of {length:,}, and wrong after it."
        findings[STAYS] = RotationFault(STAYS, said)
    if {*EXCHANGED} <= {*findings}:
        said = f"at {short:,} and {length:,} tokens"
        findings = {"": RotationFault("short and long factors are exchanged", said)}
    error = max(before.error, long.error, after.error)
    return Verdict((*findings.values(),), error, long.notes)


def _layer(spec: Spec, layer: int | None) -> tuple[Rotary, complex]:
    """Return the RoPE of a layer, and the correct complex factor of its unrotated pairs.

    The factor is 1 + i for FoPE, and otherwise 1.
    """
    if layer is not None and not 0 <= layer < len(spec.layers):
        raise ValueError(
            f"`layer` must be from 0 to {len(spec.layers) - 1}, got {layer}. Pass the index of a"
            " layer."
        )
    if layer is None:
        chosen = [*(one for one in spec.layers if one.window is None), *spec.layers]
    else:
        chosen = [spec.layers[layer]]
    for one in chosen:
        if isinstance(one.encoding, Rotary):
            return one.encoding, 1
        if isinstance(one.encoding, Fourier):
            return one.encoding.unmixed, 1 + 1j
    raise ValueError(
        f"`config` must have a layer that rotates queries and keys, got {brief(spec)}. Pass a"
        " config with RoPE, or another `layer`."
    )


def _verdict(
    observed: Observed, rotary: Rotary, spec: Spec, length: int, still: complex
) -> Verdict:
    findings: list[RotationFault] = []
    unit = _expected(observed.probe, rotary, length)
    pairs = _measured_pairs(observed, rotary, unit, findings)
    if pairs is None:
        return Verdict(tuple(findings), float("inf"))
    found = [observed.multipliers(pairs, part)[0] for part in (0, 1)]
    expected, moving = known_faults.with_unrotated(still, unit), ~known_faults.unrotated_pairs(unit)
    gains = [_gain(m[..., moving] if len(moving) == m.shape[-1] else m) for m in found]
    plain = [m / gain if gain > CLOSE else m for m, gain in zip(found, gains, strict=True)]
    error = float("inf")
    if expected.shape[-1] == found[0].shape[-1]:
        right = rotary.gain * expected[:, None]
        error = max(float((m - right).abs().max()) for m in found)
        room = slack(observed.probe.points.double(), rotary.frequencies(length).double())
        if not findings and all(_relative_error(m, right, room) < 1 for m in found):
            return Verdict((), error, (REORDERED,) if pairs.out != pairs.layout else ())
    alike = [float((m - 1).abs().max()) < CLOSE for m in plain]
    moves = float((expected - 1).abs().max()) > CLOSE
    if moves and any(alike):
        which = "queries and keys are" if all(alike) else f"{'queries' if alike[0] else 'keys'} are"
        findings.append(RotationFault(f"{which} not rotated", "They leave as they came."))
        if all(alike):
            return Verdict(tuple(findings), error)
    findings += _gains(gains, rotary)
    explained = {}
    for name, m, unmoved in zip(("queries", "keys"), plain, alike, strict=True):
        known = [] if unmoved else _explained(m, observed.probe, rotary, spec, length, still)
        if known is None and expected.shape[-1] == m.shape[-1]:
            known = [_measured(m, expected, observed.probe, rotary, length)]
        explained[name] = known or []
    findings += _of_one_or_both(explained, one=any(alike))
    return Verdict(tuple(findings), error)


def _of_one_or_both(faults: Mapping[str, list[RotationFault]], one: bool) -> list[RotationFault]:
    """Merge the faults of queries and keys, and note in a fault if only one of them has it.

    - `one`: True if only queries or only keys are rotated; no note is added then
    """
    found = {fault.name: fault for some in faults.values() for fault in some}
    for name, some in faults.items():
        others = {fault.name for other, them in faults.items() if other != name for fault in them}
        for fault in some:
            if fault.name not in others and not one:
                sentence = f"{fault.sentence} Only {name} have this fault."
                found[fault.name] = fault._replace(sentence=sentence)
    return list(found.values())


def _measured_pairs(
    observed: Observed, rotary: Rotary, unit: Tensor, findings: list[RotationFault]
) -> Pairs | None:
    """Return the arrangement of rotary pairs that explains the measured outputs, or None.

    A deviation from the config is appended to `findings`. `unit` has the correct complex factors.
    """
    tried = [*known_faults.arrangements(rotary)]
    lefts = [max(observed.multipliers(pairs, part)[1] for part in (0, 1)) for _, pairs in tried]
    enough = max(3 * min(lefts), CLOSE)
    best = next(n for n, left in enumerate(lefts) if left <= enough)
    if lefts[best] > 0.1:
        findings += _no_rotation(observed, rotary, unit, lefts[best])
        return None
    finding, pairs = tried[best]
    findings += [finding] if finding else []
    return pairs


def _no_rotation(
    observed: Observed, rotary: Rotary, unit: Tensor, left: float
) -> list[RotationFault]:
    """Describe an output that is not a rotation of pairs.

    - `left`: residual of the arrangement of pairs that fits best
    """
    if crossed := observed.crossed():
        others = {"queries": "keys", "keys": "queries"}
        return [
            RotationFault(
                f"{name} depend on {others[name]}",
                f"Rotated {name} change if only the {others[name]} change.",
            )
            for name in crossed
        ]
    for fault, rotated in known_faults.exchanges(rotary, unit):
        both = zip(observed.contents[0], observed.results[0], strict=True)
        if all(float((rotated(x.double()) - out).abs().max()) < ROUGH for x, out in both):
            return [fault]
    return [
        RotationFault(
            "not a rotation of pairs",
            "The output is not a fixed multiple of any known pair; the nearest is off by"
            f" {left:.2g} of its length.",
        )
    ]


def _gain(m: Tensor) -> float:
    return float(m.abs().nanmedian())


def _gains(gains: Sequence[float], rotary: Rotary) -> list[RotationFault]:
    """Return the faults in the measured scale of rotated queries and keys."""
    right, findings = rotary.gain, []
    for name, gain in zip(("queries", "keys"), gains, strict=True):
        if abs(gain / right - 1) < CLOSE:
            continue
        usual = yarn_gain(rotary.factor)
        known = {
            "gain missing": (1.0, right != 1),
            "gain of the config ignored": (usual, rotary.method == "yarn"),
            "gain applied twice": (right**2, right != 1),
            "softmax gain applied too": (right * rotary.logit_gain, rotary.logit_gain != 1),
            "square root of the softmax gain applied too": (
                right * rotary.logit_gain**0.5,
                rotary.logit_gain != 1,
            ),
        }
        what = next(
            (what for what, (value, may) in known.items() if may and abs(gain / value - 1) < CLOSE),
            "wrong length",
        )
        findings.append(
            RotationFault(
                f"{what}: {name}", f"{name} grow by {gain:.5g}, expected {right:.5g} (mscale)."
            )
        )
    return findings


def _expected(probe: ProbePositions, rotary: Rotary, length: int) -> Tensor:
    theta = rotary.frequencies(length).double()
    return Rounding()(probe.points.double(), theta)


def _explained(
    m: Tensor,
    probe: ProbePositions,
    rotary: Rotary,
    spec: Spec,
    length: int,
    still: complex,
) -> list[RotationFault] | None:
    """Return the fewest known faults, at most two, that explain the measured complex factors.

    Of as many faults, those with the smallest error are returned. Rounding in another step must
    halve the error, since a small rounding explains nothing.
    """
    parts = (
        [*known_faults.thetas(rotary, spec, length)],
        [*known_faults.places(probe, rotary, spec)],
        [*known_faults.roundings()],
        [*known_faults.factor_functions(still)],
    )
    best: tuple[int, float, list[RotationFault]] | None = None
    for theta, place, rounding, turn in product(*parts):
        faults = [found for found, _ in (theta, place, rounding, turn) if found]
        if len(faults) > 2 or (best and len(faults) > best[0]):
            continue
        if theta[1].shape[-1] != m.shape[-1]:
            continue
        made = turn[1](rounding[1](place[1], theta[1]))[:, None]
        error = _relative_error(m, made, slack(place[1], theta[1]))
        weighted = error * 2 ** len(rounding[1].parts)
        if error < 1 and (best is None or (len(faults), weighted) < best[:2]):
            best = len(faults), weighted, faults
    return best[2] if best else None


def _relative_error(m: Tensor, made: Tensor, room: Tensor) -> float:
    """Return the largest error of measured complex factors `m`, divided by the tolerance."""
    return float(off(m, made, room).max())


def _measured(
    m: Tensor, expected: Tensor, probe: ProbePositions, rotary: Rotary, length: int
) -> RotationFault:
    """Describe an unknown fault by the θ or positions that would cause the measured outputs."""
    right = rotary.frequencies(length).double()
    points = probe.points.double()
    if (theta := thetas(m, points)) is not None:
        fault = theta_fault(theta, right, rotary, float(points.max()))
        return RotationFault(*fault) if fault else _unknown(m, expected)
    if right.ndim == 1 and (found := positions(m, right)) is not None:
        return RotationFault(*position_fault(found, points))
    return _unknown(m, expected)


def _unknown(m: Tensor, expected: Tensor) -> RotationFault:
    """Describe the largest error of an implementation whose fault could not be identified."""
    far = (m - expected[:, None]).abs().amax((0, 1))
    token, pair = divmod(int(far.argmax()), far.shape[-1])
    return RotationFault(
        "none of the known faults",
        f"the largest error is {float(far.max()):.3g}, at pair {pair} of token {token};"
        f" {int((far.amax(0) > CLOSE).sum())} of {far.shape[-1]} pairs are wrong",
    )
