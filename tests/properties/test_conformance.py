"""Results of `conform` for five encodings as new users write them, three of them silently wrong.

Each is written in the most obvious way; its docstring states what is wrong.
"""

import random
import re
from typing import NamedTuple

import pytest
import torch
from refusals import refused
from torch import Tensor, nn
from torch.nn import functional as F

from posenc.core.encoding import Encoding
from posenc.core.prepared import Prepared
from posenc.core.running_sums import RunningSums, running_sum
from posenc.encodings.additive.learned import Learned
from posenc.encodings.bias.alibi import ALiBi
from posenc.encodings.rotary.rope import RoPE
from posenc.properties import conform
from posenc.properties.conformance import Conformance, PromiseOutcome
from posenc.properties.promises import Sizes, cache, paths, token_by_token


class Times(RunningSums, Prepared, NamedTuple("Times", [("total", Tensor), ("pos", Tensor)])):
    shape = ("head token", "head token")


class Paced(Encoding):
    """A gate in the content sets how fast time passes. Nothing is wrong with it."""

    causal = True
    prepared = Times

    def __init__(self, width, heads):
        super().__init__()
        self.width, self.heads = width, heads
        self.pace = nn.Linear(width, heads)

    def on_hidden(self, x, at):
        return Times(running_sum(self.pace(x).sigmoid()).mT.to(x.dtype), at)

    def on_scores(self, q, k, q_at, k_at, scale):
        near = (q_at.pos[..., :, None] - k_at.pos[..., None, :]) < 4
        since = q_at.total[..., :, None] - k_at.total[..., None, :]
        bias = -since * near
        return lambda b, h, i, j: bias[b, h, i, j]


class OwnRoPE(Encoding):
    """Frequencies for each head, learned. Nothing is wrong with it."""

    def __init__(self, dim, heads):
        super().__init__()
        self.dim, self.heads = dim, heads
        self.theta = nn.Parameter(torch.rand(heads, dim // 2))

    def on_queries(self, q, at):
        pos = at if at.ndim == 3 else at.unsqueeze(-2)
        angle = pos.unsqueeze(-1) * self.theta.unsqueeze(-2)
        cos, sin = angle.cos().to(q.dtype), angle.sin().to(q.dtype)
        x, y = q.chunk(2, -1)
        return torch.cat((cos * x - sin * y, sin * x + cos * y), -1)

    def on_keys(self, k, at):
        return self.on_queries(k.repeat_interleave(self.heads // k.shape[1], 1), at)


class Continuous(Encoding):
    """A network of log distances on a page. Wrong: `h` does not broadcast with i and j."""

    axes = 2

    def __init__(self, heads):
        super().__init__()
        self.heads = heads
        self.inner, self.outer = nn.Linear(2, 16), nn.Linear(16, heads)

    def on_scores(self, q, k, q_at, k_at, scale):
        def pair(b, h, i, j):
            apart = (q_at[..., i, :] - k_at[..., j, :]).to(q.dtype)
            return self.outer(self.inner(apart.sign() * apart.abs().log1p()).relu())[..., h]

        return pair


class ValueRoPE(RoPE):
    """Values turn too, and their sum turns back. Nothing is wrong with it."""

    def __init__(self, dim):
        super().__init__(dim)

    def on_values(self, v, at):
        return self.on_queries(v, at)

    def on_output(self, out, at):
        return self.on_queries(out, at._replace(sin=-at.sin))


class Canon(Encoding):
    """A convolution over queries, keys and values. Wrong: hooks see the tokens of one call only."""

    def __init__(self, dim):
        super().__init__()
        self.dim = dim
        self.taps = nn.Parameter(torch.randn(3, dim) * 0.3)

    def on_queries(self, x, at):
        before = F.pad(x, (0, 0, 2, 0))
        return x + sum(before[..., n : n + x.shape[-2], :] * self.taps[n] for n in range(3))

    on_keys = on_values = on_queries


def names(conformance):
    return {outcome.name for outcome in conformance.failed}


@pytest.mark.parametrize("stranger", [OwnRoPE, Paced, ValueRoPE], ids=lambda kind: kind.__name__)
def test_strangers_that_are_right_break_nothing(unchecked, stranger):
    assert not names(conform(stranger))


def test_a_bias_with_an_axis_too_many_is_refused(unchecked):
    found = conform(Continuous)
    assert names(found) == {"runs"}
    assert "shape (" in found[0].why or "on_scores" in found[0].why


def test_a_convolution_over_tokens_is_refused_where_it_is_wrong(unchecked):
    conformance = conform(Canon)
    found = {one.name: one for one in conformance}
    assert names(conformance) == {"cache", "packed texts", "padding", "token by token"}
    assert found["paths"].holds
    assert re.match(r"`on_queries` of tokens in reverse: .* at batch 0, head 0, token \d, channel",
                    found["token by token"].why)  # fmt: skip
    assert found["token by token"].smallest == Sizes(1, 2, 1)


# What is said


def test_says_in_one_sentence_what_is_broken(unchecked):
    found = conform(Canon, promises=[cache, token_by_token])
    assert re.fullmatch(
        r"Canon breaks the promise `cache`: token by token with a cache, path 'auto': \S+ "
        r"instead of \S+ at batch 0, token 1, channel \d+ \(1 text of 2 tokens, 1 head\); and "
        r"`token by token`\. .*by_length = True.*\.",
        found.refusal,
    )
    with pytest.raises(
        AssertionError, match=r"(?s)Canon breaks the promise `cache`.*\n\ncache  +✗ "
    ):
        found.raise_if_failed()
    assert conform(ALiBi(4), promises=[cache]).refusal == ""
    conform(ALiBi(4), promises=[cache]).raise_if_failed()


def test_outcomes_are_a_table():
    found = Conformance(
        "Mine",
        [
            PromiseOutcome("cache", True, 1e-16, "4 comparisons, at most 10⁻¹⁶ apart"),
            PromiseOutcome("batches", False, 0.5, "1 instead of 2", Sizes(2, 1, 1)),
            PromiseOutcome("dtypes", None, float("nan"), "not applicable: why <not>"),
        ],
    )
    assert str(found).splitlines() == [
        "cache                  ✓ 4 comparisons, at most 10⁻¹⁶ apart",
        "batches                ✗ 1 instead of 2 (2 texts of 1 token, 1 head)",
        "dtypes                 – not applicable: why <not>",
    ]
    assert repr(found) == str(found)
    html = found._repr_html_()
    assert "<td>✗</td><td>1 instead of 2 (2 texts of 1 token, 1 head)</td>" in html
    assert "why &lt;not&gt;" in html


def test_an_error_of_the_users_code_is_told_with_its_line(tmp_path, unchecked):
    (tmp_path / "mine.py").write_text(
        "from posenc import Encoding\n"
        "class Mine(Encoding):\n"
        "    def on_queries(self, q, at):\n"
        "        return q[len([]) // 0]\n"
    )
    found = conform(f"{tmp_path}/mine.py:Mine")
    assert [one.why for one in found] == [
        "mine.py, line 4: ZeroDivisionError: integer division or modulo by zero"
    ]


def test_what_computes_in_32_bits_alone_is_tried_in_32_bits():
    class Narrow(Encoding):
        """Adds a row in float32, whatever comes in."""

        def on_queries(self, q, at):
            return (q.float() + 1).to(torch.float32)

        on_keys = on_queries

    conformance = conform(Narrow())
    found = {one.name: one for one in conformance}
    assert names(conformance) == {"dtypes"}
    assert found["paths"].holds


# What is taken


def test_takes_a_class_an_instance_a_function_or_a_card():
    few = {"promises": [cache]}
    for mine in (RoPE(8), lambda dim: RoPE(dim), "rope", RoPE(8), ALiBi):
        (found, *declared) = conform(mine, 8, 2, **few)
        assert found.holds
        assert bool(declared) == (mine == "rope")
    sizes = conform(Learned(6, 8), heads=2, promises=[paths])
    assert not sizes.failed


@pytest.mark.parametrize("mine", [3, None, [RoPE(8)]])
def test_says_what_it_takes(unchecked, mine):
    with refused(TypeError, "`mine`"):
        conform(mine)


def test_one_position_cannot_be_tried():
    with refused(ValueError, "`mine`", "Learned"):
        conform(Learned(1, 8))


@pytest.mark.parametrize("length", [2, 9])
def test_a_short_table_can_be_tried(unchecked, length):
    assert not conform(Learned(length, 8), heads=2).failed


def test_nothing_of_the_users_is_touched(unchecked):
    encoding = Learned(64, 64)
    before = encoding.table.detach().clone()
    state = torch.get_rng_state(), random.getstate()
    first = conform(encoding)
    assert torch.get_rng_state().equal(state[0])
    assert random.getstate() == state[1]
    assert encoding.table.equal(before)
    assert encoding.table.grad is None
    assert encoding.training
    torch.manual_seed(5)
    assert str(conform(encoding)) == str(first)
