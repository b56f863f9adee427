"""Answers to the exercises, in plain torch. Try the notebooks first."""

from math import log, pi

import torch

from posenc import Encoding


def sinusoids(n, width):
    theta = 10_000.0 ** (-2 * torch.arange(width // 2) / width)
    angles = torch.arange(n)[:, None] * theta
    return torch.stack([angles.sin(), angles.cos()], -1).flatten(-2)


def shift_matrix(k, theta):
    angle = torch.tensor(k * theta)
    return torch.stack([angle.cos(), angle.sin(), -angle.sin(), angle.cos()]).view(2, 2)


def rope_complex(x, pos):
    theta = 10_000.0 ** (-2 * torch.arange(x.shape[-1] // 2) / x.shape[-1])
    pairs = torch.view_as_complex(x.unflatten(-1, (-1, 2)).contiguous())
    return torch.view_as_real(pairs * torch.exp(1j * pos[:, None] * theta)).flatten(-2)


def rope_halves(x, pos):
    theta = 10_000.0 ** (-2 * torch.arange(x.shape[-1] // 2) / x.shape[-1])
    angles = pos[:, None] * theta
    a, b = x.chunk(2, -1)
    turned = a * angles.cos() - b * angles.sin(), a * angles.sin() + b * angles.cos()
    return torch.cat(turned, -1)


def alibi(heads, n):
    slopes = 2.0 ** (-8 * torch.arange(1, heads + 1) / heads)
    offset = torch.arange(n)[:, None] - torch.arange(n)
    return -slopes[:, None, None] * offset.abs()


def t5_bucket(offset):
    far = 16 + torch.floor(16 * torch.log(offset.clamp(min=1) / 16) / log(128 / 16))
    return torch.where(offset < 16, offset, far.clamp(max=31)).long()


def unfinished_pairs(base, dim, length):
    return sum(2 * pi / base ** (-2 * j / dim) > length for j in range(dim // 2))


def ntk(theta, factor):
    last = len(theta) - 1
    return theta * factor ** (-torch.arange(last + 1) / last)


def yarn(theta, factor, trained):
    kept = ((trained * theta / (2 * pi) - 1) / 31).clamp(0, 1)
    return kept * theta + (1 - kept) * theta / factor


class LogBias(Encoding):
    def on_scores(self, q, k, q_at, k_at, scale):
        distance = (q_at[..., :, None] - k_at[..., None, :]).abs()
        return -torch.log1p(distance.to(q.dtype)).expand(*q.shape[:-1], k.shape[-2])
