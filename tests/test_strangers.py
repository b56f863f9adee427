"""Four encodings as a stranger writes them, one file each and nothing else: through everything.

Held against attention written out in loops, and against each text by itself.
"""

import json

import pytest
import torch

from posenc import SelfAttention, attend, masks, positions
from posenc.catalog import create, find
from posenc.properties import check
from posenc.studies.comparison import compare

DISTANCE = '''"""Fading: a key fades with the logarithm of its distance.

    score(i, j) = qᵢ · kⱼ · scale − ln(1 + |pᵢ − pⱼ|)
"""

from posenc import Encoding
from posenc.core.biases import DistanceBias


class Mine(Encoding):
    def on_scores(self, q, k, q_at, k_at, scale):
        return DistanceBias(lambda h, offset: -(1.0 + offset.abs()).log(), q, q_at, k_at)
'''

CONTENT = '''"""Counting: a query counts the keys that it takes for marks, from each key to itself.

    score(i, j) = qᵢ · kⱼ · scale − a Σ_{j ≤ t ≤ i} σ(qᵢ · k_t)
"""

import torch
from torch import nn

from posenc import Encoding


class Counted:
    def __init__(self, q, k, a):
        self.q, self.k, self.a = q, k, a

    def block(self, rows, keys, seen):
        gates = (self.q[..., rows, :] @ self.k[..., keys, :].mT).sigmoid()
        gates = gates if seen is None else gates * seen
        return -self.a * gates.flip(-1).cumsum(-1).flip(-1)


class Mine(Encoding):
    causal = True

    def __init__(self):
        super().__init__()
        self.a = nn.Parameter(torch.tensor(0.5))

    def on_scores(self, q, k, q_at, k_at, scale):
        return Counted(q, k.repeat_interleave(q.shape[1] // k.shape[1], 1), self.a)
'''

GATE = '''"""Forgetting: each token says how much of what stands before it is forgotten.

    score(i, j) = qᵢ · kⱼ · scale + Σ_{j < t ≤ i} ln σ(w · x_t + b)
"""

from typing import NamedTuple

from torch import Tensor, nn

from posenc import Encoding
from posenc.core.prepared import Prepared


class Sums(Prepared, NamedTuple("Sums", [("logs", Tensor)])):
    shape = "head token"


class Mine(Encoding):
    causal = True
    prepared = Sums

    def __init__(self, width, heads):
        super().__init__()
        self.width, self.heads = width, heads
        self.gate = nn.Linear(width, heads)

    def on_hidden(self, x, at):
        return Sums(nn.functional.logsigmoid(self.gate(x)).cumsum(-2).mT)

    def on_scores(self, q, k, q_at, k_at, scale):
        return lambda b, h, i, j: q_at.logs[b, h, i] - k_at.logs[b, h, j]
'''

ROTATION = '''"""Turning: queries and keys go through one learned matrix, and turn by position.

    q′ = R(p) W q,   k′ = R(p) W k,      θ = 1, 1/2, 1/3, … radians per token
"""

import torch
from torch import nn

from posenc import Encoding


class Mine(Encoding):
    def __init__(self, dim):
        super().__init__()
        self.dim = dim
        self.w = nn.Linear(dim, dim, bias=False)

    def on_queries(self, q, at):
        theta = 1 / torch.arange(1, self.dim // 2 + 1)
        angle = (at.unsqueeze(-1).double() * theta).unsqueeze(-3)
        cos, sin = angle.cos().to(q.dtype), angle.sin().to(q.dtype)
        x, y = self.w(q).chunk(2, -1)
        return torch.cat((cos * x - sin * y, sin * x + cos * y), -1)

    on_keys = on_queries
'''

KINDS = {"distance": DISTANCE, "content": CONTENT, "gate": GATE, "rotation": ROTATION}
ALWAYS = {"shift_invariant", "any_length", "length_independent", "order_sensitive"}
HOLDS = {
    "distance": ALWAYS | {"norm_preserving", "symmetric", "decaying"},
    "content": ALWAYS | {"norm_preserving", "learned", "decaying"},
    "gate": ALWAYS | {"norm_preserving", "learned", "decaying"},
    "rotation": ALWAYS | {"learned", "unique_positions", "bounded", "norm_constant"}
    | {"linear_shift"},
}  # fmt: skip
REFUSED = {  # torch's own kernel carries no bias, and strided views those of distance alone
    *(("distance", "sdpa"), ("content", "sdpa"), ("gate", "sdpa")),
    *(("content", "toeplitz"), ("gate", "toeplitz")),
}
each = pytest.mark.parametrize("kind", KINDS)


@pytest.fixture
def named(tmp_path):
    """named("gate") -> "…/gate.py:Mine" """

    def write(kind):
        (tmp_path / f"{kind}.py").write_text(KINDS[kind])
        return f"{tmp_path}/{kind}.py:Mine"

    return write


@each
def test_its_properties_are_measured(kind, named):
    found = check(create(named(kind), 16, 4))
    assert {name for name, finding in found.items() if finding.holds} == HOLDS[kind]


@each
def test_it_is_compared_by_name_and_as_an_instance(kind, named, text, small):
    name = named(kind)
    encoding = create(name, small.dim, small.heads)
    result = compare([name, encoding, "rope"], text, small)
    assert [one.name for one in result.encodings] == ["Mine", "Mine 2", "RoPE"]
    for one in result.encodings[:2]:
        assert {name for name, f in one.properties.items() if f.holds} == HOLDS[kind]
        assert one.formula in find(name).text
        assert max(far.change for far in one.far) < 1e-4
    json.dumps(result.to_json(), allow_nan=False)


@each
def test_its_layer_is_attention_written_out(kind, named):
    """In loops over queries, with scores of the definition, each formed for itself."""
    layer, x = SelfAttention(16, 2, create(named(kind), 8, 2)), torch.randn(1, 7, 16)
    encoding, pos = layer.encoding, torch.arange(7)
    at = encoding.on_hidden(x, encoding.prepare(pos))
    q, k, v = (to(x).unflatten(-1, (2, 8)).transpose(1, 2) for to in (layer.q, layer.k, layer.v))
    rows = []
    for i in range(7):  # what follows a token is not even there
        one, seen = slice(i, i + 1), slice(i + 1)
        here = encoding.on_hidden(x[:, seen], encoding.prepare(pos[seen]))
        whole = attend(
            q[:, :, seen], k[:, :, seen], v[:, :, seen], encoding, here, mask=masks.causal(),
            implementation="reference",
        )  # fmt: skip
        rows.append(whole[:, :, one])
    expected = layer.out(torch.cat(rows, 2).transpose(1, 2).flatten(2))
    torch.testing.assert_close(layer(x, mask=masks.causal()), expected)
    out = attend(q, k, v, encoding, at, mask=masks.causal())
    torch.testing.assert_close(layer.out(out.transpose(1, 2).flatten(2)), expected)


@each
@pytest.mark.parametrize("path", ["auto", "sdpa", "toeplitz", "blocks"])
@pytest.mark.parametrize("groups", [1, 2])
def test_every_path_equals_the_definition_or_refuses_in_a_sentence(kind, named, path, groups):
    encoding, x = create(named(kind), 8, 2), torch.randn(2, 300, 16)
    at = encoding.on_hidden(x, encoding.prepare(torch.arange(300)))
    q, k, v = torch.randn(2, 2, 300, 8), *torch.randn(2, 2, groups, 300, 8)
    with torch.no_grad():
        arguments = (q, k, v, encoding, at, None, masks.causal())
        if (kind, path) in REFUSED:
            with pytest.raises(ValueError, match=f'`implementation="{path}"`'):
                attend(*arguments, implementation=path)
            return
        expected = attend(*arguments, implementation="reference")
        out = attend(*arguments, implementation=path)
    torch.testing.assert_close(out, expected, rtol=1e-4, atol=1e-5)


@each
def test_packed_texts_equal_separate_ones(kind, named):
    layer, lengths = SelfAttention(16, 2, create(named(kind), 8, 2)), [5, 3, 6]
    x = torch.randn(1, sum(lengths), 16)
    only_own = masks.causal() & masks.documents(positions.documents(lengths))
    packed = layer(x, positions.packed(lengths), only_own)
    apart = [layer(text, mask=masks.causal()) for text in x.split(lengths, 1)]
    torch.testing.assert_close(packed, torch.cat(apart, 1))


@each
def test_every_parameter_gets_a_gradient(kind, named):
    layer = SelfAttention(16, 2, create(named(kind), 8, 2))
    layer(torch.randn(2, 27, 16), mask=masks.causal()).square().sum().backward()
    for name, parameter in layer.encoding.named_parameters():
        assert parameter.grad.abs().sum() > 0, name
