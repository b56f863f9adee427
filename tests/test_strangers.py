"""Four encodings as a stranger writes them, one file each and nothing else: through everything.

Held against attention written out in loops, and against each text by itself.
"""

import json

import pytest
import torch

from posenc import SelfAttention, attend, masks
from posenc.catalog import create, find
from posenc.lab.compare.comparison import compare
from posenc.properties import check
from posenc.testing import conform

DISTANCE = '''"""Fading: a key fades with the logarithm of its distance.

    score(i, j) = qᵢ · kⱼ · scale − ln(1 + |pᵢ − pⱼ|)
"""

from posenc import Encoding
from posenc.biases.distance import DistanceBias


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

GATE = '''"""Forgetting: the gate of each token sets how much of the earlier text is forgotten.

    score(i, j) = qᵢ · kⱼ · scale + Σ_{j < t ≤ i} ln σ(w · x_t + b)
"""

from typing import NamedTuple

from torch import Tensor, nn

from posenc import Encoding
from posenc.core.prepared import Prepared
from posenc.core.running_sums import RunningSums


class Sums(RunningSums, Prepared, NamedTuple("Sums", [("logs", Tensor)])):
    shape = "head token"
    sums = ("logs",)


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
        angle = at.unsqueeze(-1).double() * theta
        angle = angle if at.ndim == 3 else angle.unsqueeze(-3)
        cos, sin = angle.cos().to(q.dtype), angle.sin().to(q.dtype)
        x, y = self.w(q).chunk(2, -1)
        return torch.cat((cos * x - sin * y, sin * x + cos * y), -1)

    on_keys = on_queries
'''

KINDS = {"distance": DISTANCE, "content": CONTENT, "gate": GATE, "rotation": ROTATION}
ALWAYS = {"shift_invariant", "any_length", "length_independent", "order_sensitive"}
HOLDS = {
    "distance": ALWAYS | {"norm_preserving", "symmetric", "decaying"},
    "content": ALWAYS | {"norm_preserving", "learned"},  # `a` may become negative
    "gate": ALWAYS | {"norm_preserving", "learned", "decaying"},
    "rotation": ALWAYS | {"learned", "unique_positions", "bounded", "norm_constant"}
    | {"linear_shift"},
}  # fmt: skip
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
def test_it_keeps_every_promise(kind, named):
    """Test it as its author would: paths, caches, packed texts, gradients."""
    conform(named(kind), 8, 2)
