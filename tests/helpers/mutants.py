"""39 mistakes that people make in an encoding of their own, each in a small class.

`conform` must catch them. Each class changes as little as it can of an encoding that is right:
queries and keys are scaled by position, or scores fall with distance.
"""

import torch
from torch import nn

from posenc.biases.distance import DistanceBias
from posenc.core.biases import offset
from posenc.core.encoding import Encoding


def lined_up(at):
    """Return positions with the shape (batch or 1, head or 1, token)."""
    while at.ndim < 3:
        at = at.unsqueeze(-2)
    return at


class Turned(Encoding):
    """RoPE in two lines; each subclass makes one mistake."""

    def __init__(self, dim):
        super().__init__()
        self.dim = dim
        self.theta = 100.0 ** (-torch.arange(dim // 2, dtype=torch.float64) / (dim // 2))

    def angle(self, at):
        return lined_up(at).unsqueeze(-1) * self.theta

    def on_queries(self, q, at):
        angle = self.angle(at)
        cos, sin = angle.cos().to(q.dtype), angle.sin().to(q.dtype)
        x, y = q.chunk(2, -1)
        return torch.cat((cos * x - sin * y, sin * x + cos * y), -1)

    def on_keys(self, k, at):
        return self.on_queries(k, at)


class Fading(Encoding):
    """Scores that fall with distance, by a learned slope; each subclass makes one mistake."""

    def __init__(self):
        super().__init__()
        self.slope = nn.Parameter(torch.tensor(0.05))

    def curve(self, h, offset):
        return -self.slope * offset.abs()

    def on_scores(self, q, k, q_at, k_at, scale):
        return DistanceBias(self.curve, q, q_at, k_at)


# Caught before: the paths of attention, a cache, packed texts or a batch differ


class CachedByShape(Turned):
    def angle(self, at):
        self.__dict__.setdefault("kept", {})
        return self.kept.setdefault(at.shape, super().angle(at))


class CountsCalls(Turned):
    calls = 0

    def on_queries(self, q, at):
        self.calls += 1
        return super().on_queries(q, at) * (1 + self.calls / 100)


class CountsTokens(Turned):
    tokens = 0

    def on_keys(self, k, at):
        self.tokens += k.shape[-2]
        return super().on_keys(k, at + self.tokens)


class Noise(Fading):
    def on_scores(self, q, k, q_at, k_at, scale):
        return 0.1 * torch.randn(q.shape[-2], k.shape[-2], dtype=q.dtype)


class WritesQueries(Turned):
    def on_queries(self, q, at):
        return super().on_queries(q.mul_(1.1), at)


class WritesKeys(Turned):
    def on_keys(self, k, at):
        return super().on_keys(k.add_(0.1), at)


class IndexForPosition(Turned):
    def angle(self, at):
        return super().angle(torch.arange(at.shape[-1]))


class IndexesOfScores(Fading):
    def on_scores(self, q, k, q_at, k_at, scale):
        return lambda b, h, i, j: -self.slope * (i - j).abs()


class LengthOfKeys(Fading):
    def on_scores(self, q, k, q_at, k_at, scale):
        apart = offset(q_at, k_at)
        return lambda b, h, i, j: -apart(b, h, i, j).abs() * self.slope / k.shape[-2]


class ShareOfLength(Turned):
    def angle(self, at):
        return super().angle(at) / at.shape[-1]


class ConvolvesQueries(Turned):
    def on_queries(self, q, at):
        return super().on_queries(q + 0.5 * q.roll(1, -2), at)


class ConvolvesValues(Turned):
    def on_values(self, v, at):
        return v + 0.5 * v.roll(1, -2)


class KeysAhead(Turned):
    def on_keys(self, k, at):
        return super().on_keys(k + 0.1 * k.flip(-2).cumsum(-2).flip(-2), at)


class FirstTextForAll(Turned):
    def angle(self, at):
        return super().angle(at[:1] if at.ndim > 1 else at)


class FirstHeadForAll(Turned):
    def angle(self, at):
        return super().angle(at[:, :1] if at.ndim == 3 else at)


class FirstKeyIsOrigin(Turned):
    def angle(self, at):
        return super().angle(at - at[..., :1])


class NeedsContiguous(Turned):
    def on_queries(self, q, at):
        return super().on_queries(q.contiguous().view(-1).as_strided(q.shape, q.stride()), at)


class MeanOfText(Turned):
    def on_queries(self, q, at):
        return super().on_queries(q - 0.5 * q.mean(-2, keepdim=True), at)


class MeanOfBatch(Turned):
    def on_queries(self, q, at):
        return super().on_queries(q - 0.5 * q.mean(0, keepdim=True), at)


class LargestKey(Fading):
    def on_scores(self, q, k, q_at, k_at, scale):
        largest = k.amax((-1, -2, -3))
        return lambda b, h, i, j: self.slope * largest[b] * (i == j)


class AlwaysFloat32(Turned):
    def on_queries(self, q, at):
        return super().on_queries(q, at).float()


class HeadsOfAGroup(Fading):
    def on_scores(self, q, k, q_at, k_at, scale):
        likeness = k.mean(-1)
        return lambda b, h, i, j: likeness[b, h % k.shape[1], j]


class OneQueryUnlikeMany(Turned):
    def on_queries(self, q, at):
        return super().on_queries(q, at) * (1.5 if q.shape[-2] == 1 else 1.0)


class AddsToOutput(Turned):
    def on_output(self, out, at):
        return out + 0.1


# Wrong on every path alike


class WeightsReadOnce(Fading):
    kept = None

    def on_scores(self, q, k, q_at, k_at, scale):
        if self.kept is None:
            self.kept = self.slope.detach().clone()
        apart, slope = offset(q_at, k_at), self.kept + self.slope - self.slope.detach()
        return lambda b, h, i, j: -slope * apart(b, h, i, j).abs()


class DoubledGradient(Fading):
    def curve(self, h, offset):
        return super().curve(h, offset) * 2 - super().curve(h, offset).detach()


class Doubles(torch.autograd.Function):
    forward = staticmethod(lambda ctx, x: 2 * x)
    backward = staticmethod(lambda ctx, g: 3 * g)


class WrongBackward(Turned):
    def on_queries(self, q, at):
        return super().on_queries(Doubles.apply(q), at)


class DetachedQueries(Turned):
    def on_queries(self, q, at):
        return super().on_queries(q.detach(), at)


class AnglesIn16Bits(Turned):
    def angle(self, at):
        return super().angle(at).half().double()


class AnglesInBfloat16(Turned):
    def angle(self, at):
        return super().angle(at).bfloat16().double()


class AnglesIn32Bits(Turned):
    def angle(self, at):
        return (lined_up(at).unsqueeze(-1).float() * self.theta.float()).double()


class PositionsOf8Bits(Turned):
    def angle(self, at):
        return super().angle(at.to(torch.int8))


class PositionsOf32Bits(Turned):
    def angle(self, at):
        return super().angle(at.to(torch.int32))


class ManyQueries(Turned):
    def on_queries(self, q, at):
        return super().on_queries(q, at) * (1.5 if q.shape[-2] > 120 else 1.0)


class ManyKeys(Turned):
    def on_keys(self, k, at):
        return super().on_keys(k, at) * (1.5 if k.shape[-2] > 300 else 1.0)


class ManyTexts(Turned):
    def on_queries(self, q, at):
        return super().on_queries(q, at) * (1.5 if len(q) > 2 else 1.0)


class NoNumberFarAway(Fading):
    def curve(self, h, offset):
        return (500 - offset.abs()).to(self.slope.dtype).sqrt() * self.slope


class OtherInTraining(Turned):
    def on_queries(self, q, at):
        return super().on_queries(q, at) * (1.1 if self.training else 1.0)


class WritesPositions(Turned):
    def on_keys(self, k, at):
        turned = self.on_queries(k, at)
        at.zero_()
        return turned


MUTANTS = [
    CachedByShape, CountsCalls, CountsTokens, Noise, WritesQueries, WritesKeys, IndexForPosition,
    IndexesOfScores, LengthOfKeys, ShareOfLength, ConvolvesQueries, ConvolvesValues, KeysAhead,
    FirstTextForAll, FirstHeadForAll, FirstKeyIsOrigin, NeedsContiguous, MeanOfText, MeanOfBatch,
    LargestKey, AlwaysFloat32, HeadsOfAGroup, OneQueryUnlikeMany, AddsToOutput, WeightsReadOnce,
    DoubledGradient, WrongBackward, DetachedQueries, AnglesIn16Bits, AnglesInBfloat16,
    AnglesIn32Bits, PositionsOf8Bits, PositionsOf32Bits, ManyQueries, ManyKeys, ManyTexts,
    NoNumberFarAway, OtherInTraining, WritesPositions,
]  # fmt: skip
