"""Softcaps, sinks and dropout against loops in float64, and transformers' eager attention."""

import math
from itertools import product

import pytest
import torch
from refusals import refused

from posenc import masks
from posenc.attention.attend import attend, explain
from posenc.attention.layer import SelfAttention
from posenc.catalog import CATALOG
from posenc.core.encoding import Encoding, Sum
from posenc.encodings.additive.sinusoidal import Sinusoidal
from posenc.encodings.bias.alibi import ALiBi
from posenc.encodings.bias.t5 import T5Bias
from posenc.encodings.nope import NoPE
from posenc.encodings.relative.shaw import Shaw
from posenc.encodings.relative.transformer_xl import TransformerXL
from posenc.encodings.rotary.rope import RoPE

DIM, HEADS = 8, 4
ENCODINGS = {
    "NoPE": NoPE,
    "RoPE": lambda: RoPE(DIM),
    "ALiBi": lambda: ALiBi(HEADS),
    "T5": lambda: T5Bias(HEADS),
    "Shaw": lambda: Shaw(DIM, reach=3),
    "Transformer-XL": lambda: TransformerXL(DIM, HEADS),
    "RoPE and ALiBi": lambda: Sum(RoPE(DIM), ALiBi(HEADS)),
}
MASKS = {
    "everything": lambda q, k: None,
    "causal": masks.causal,
    "window": lambda q, k: masks.causal(q, k) & masks.window(5, q, k),
    "some unseen": lambda q, k: masks.Mask(lambda b, h, i, j: (j + i + b) % 3 != 0),
}
PATHS = ("auto", "reference", "blocks", "sdpa", "toeplitz")


def heads(heads, tokens, channels=DIM, dtype=torch.float64):
    return torch.randn(2, heads, tokens, channels, dtype=dtype)


# The definition


class Slanted(Encoding):
    """A bias that can be read off its line."""

    def on_scores(self, q, k, q_at, k_at, scale):
        return lambda b, h, i, j: 0.1 * (h + 1) * (q_at[0, 0, i] - k_at[0, 0, j])


def by_hand(q, k, v, sees, softcap, sinks):
    """One query at a time, in Python floats: capped, then biased, then shared with the sink."""
    out, scale = torch.zeros(*q.shape[:-1], v.shape[-1], dtype=torch.float64), q.shape[-1] ** -0.5
    q, k, v, group = q.tolist(), k.tolist(), v.tolist(), q.shape[1] // k.shape[1]
    for b, h, i in product(*map(range, out.shape[:-1])):
        keys, values, mass = k[b][h // group], v[b][h // group], {}
        for j in range(len(keys)):
            s = scale * sum(x * y for x, y in zip(q[b][h][i], keys[j], strict=True))
            s = s if softcap is None else softcap * math.tanh(s / softcap)
            if sees(b, i, j):
                mass[j] = math.exp(s + 0.1 * (h + 1) * (i - j))
        total = sum(mass.values()) + (0 if sinks is None else math.exp(sinks[h]))
        for j, c in product(mass, range(out.shape[-1])):
            out[b, h, i, c] += mass[j] / total * values[j][c]
    return out


@pytest.mark.parametrize("path", ["auto", "reference", "blocks"])
@pytest.mark.parametrize("softcap", [None, 0.7])
@pytest.mark.parametrize("sinks", [None, (0.5, -1.0, 2.0, 0.0)])
def test_attention_is_the_loop_over_its_definition(path, softcap, sinks):
    q, k, v = heads(4, 5), heads(2, 5), heads(2, 5, 3)
    mask = masks.padding([5, 4]) & masks.Mask(lambda b, h, i, j: (j <= i) & (i != 2))
    given = None if sinks is None else torch.tensor(sinks, dtype=torch.float64)
    options = dict(implementation=path, softcap=softcap, sinks=given)
    out = attend(q, k, v, Slanted(), mask=mask, **options)
    sees = lambda b, i, j: j <= i and i != 2 and j < (5, 4)[b]  # noqa: E731
    torch.testing.assert_close(out, by_hand(q, k, v, sees, softcap, sinks))
    assert out[:, :, 2].eq(0).all()


def eager(name, module, q, k, v, mask, **more):
    modeling = pytest.importorskip(f"transformers.models.{name}.modeling_{name}")
    added = torch.zeros(mask.shape, dtype=q.dtype).masked_fill(~mask, torch.finfo(q.dtype).min)
    out, _ = modeling.eager_attention_forward(module, q, k, v, added, scaling=0.3, **more)
    return out.transpose(1, 2)


def module(**attributes):
    module = torch.nn.Module().eval()
    module.num_key_value_groups = 2
    for name, value in attributes.items():
        setattr(module, name, value)
    return module


@pytest.mark.parametrize("path", ["auto", "reference", "blocks"])
def test_a_softcap_is_that_of_gemma_2(path):
    q, k, v = (heads(n, 7, dtype=torch.float32) for n in (4, 2, 2))
    mask = torch.ones(7, 7, dtype=torch.bool).tril()
    expected = eager("gemma2", module(), q, k, v, mask, softcap=0.4)
    out = attend(q, k, v, NoPE(), mask=masks.causal(), scale=0.3, softcap=0.4, implementation=path)
    torch.testing.assert_close(out, expected)


@pytest.mark.parametrize("path", PATHS)
def test_sinks_are_those_of_gpt_oss(path):
    q, k, v = (heads(n, 7, dtype=torch.float32) for n in (4, 2, 2))
    mask, sinks = torch.ones(7, 7, dtype=torch.bool).tril(), torch.randn(4)
    expected = eager("gpt_oss", module(sinks=sinks), q, k, v, mask)
    out = attend(q, k, v, NoPE(), mask=masks.causal(), scale=0.3, sinks=sinks, implementation=path)
    torch.testing.assert_close(out, expected)


# Every path equals the reference


def carries(path, name, what):
    if what == "softcap" and path in ("sdpa", "toeplitz"):
        return False
    if path == "sdpa":
        return name in ("NoPE", "RoPE")
    return path != "toeplitz" or name in ("NoPE", "RoPE", "ALiBi", "T5", "RoPE and ALiBi")


SERVED = [
    (path, name, case, what)
    for path, name, case, what in product(
        [path for path in PATHS if path != "reference"], ENCODINGS, MASKS, ("softcap", "sinks")
    )
    if carries(path, name, what) and not (path == "toeplitz" and case == "some unseen")
]


@pytest.mark.parametrize(("path", "name", "case", "what"), SERVED)
def test_every_path_gives_the_reference_and_its_gradients(path, name, case, what):
    encoding = ENCODINGS[name]().double()
    pos = torch.arange(140 if path == "blocks" else 12)
    mask = MASKS[case](pos, pos)
    q, k, v = heads(4, len(pos)), heads(2, len(pos)), heads(2, len(pos))
    sinks = torch.randn(4, dtype=torch.float64)
    leaves = [q, k, v, *encoding.parameters(), *([sinks] if what == "sinks" else [])]
    options = dict(sinks=sinks) if what == "sinks" else dict(softcap=0.5)

    def run(path):
        for leaf in leaves:
            leaf.requires_grad_()
        out = attend(q, k, v, encoding, pos, mask=mask, implementation=path, **options)
        return out.detach(), *torch.autograd.grad((out * v.repeat(1, 2, 1, 1)).sum(), leaves)

    torch.testing.assert_close(run(path), run("reference"), rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("card", CATALOG, ids=lambda card: card.slug)
@pytest.mark.parametrize("tokens", [1, 9, 200])
def test_without_gradients_auto_gives_the_reference(card, tokens):
    encoding = card.make(DIM, HEADS)
    if {"on_embeddings", "on_hidden"} & {*encoding.acts_on} or encoding.axes > 1:
        encoding = NoPE()
    keys = max(tokens, 30)
    at = encoding.prepare(torch.arange(keys - tokens, keys))
    k_at = encoding.prepare(torch.arange(keys))
    mask = masks.causal(torch.arange(keys - tokens, keys), torch.arange(keys))
    q, k, v = (heads(*n, dtype=torch.float32) for n in ((4, tokens), (2, keys), (2, keys)))
    with torch.no_grad():
        for options in (
            dict(softcap=0.5),
            dict(sinks=torch.randn(4)),
            dict(sinks=torch.randn(4), softcap=2),
        ):
            out = attend(q, k, v, encoding, at, k_at, mask, **options)
            expected = attend(q, k, v, encoding, at, k_at, mask, None, "reference", **options)
            torch.testing.assert_close(out, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("trains", [False, True])
def test_16_bits_are_near_the_exact_ones(dtype, trains):
    q, k, v = (heads(n, 20, dtype=dtype).requires_grad_(trains) for n in (4, 2, 2))
    sinks, few = torch.randn(4), 8 * torch.finfo(dtype).eps
    for encoding, mask, options in product(
        (NoPE(), ALiBi(4)),
        (masks.causal(), masks.causal() & masks.window(3), None),
        (dict(sinks=sinks), dict(sinks=sinks.to(dtype)), dict(softcap=0.5)),
    ):
        out = attend(q, k, v, encoding, mask=mask, **options)
        exact = [x.detach().double() for x in (q, k, v)]
        expected = attend(*exact, encoding, mask=mask, **options)
        assert out.dtype == dtype
        torch.testing.assert_close(out.detach().double(), expected, rtol=few, atol=few)


@pytest.mark.filterwarnings("ignore:`torch.jit")  # a part of torch's own jvp
def test_second_derivatives_are_those_of_the_definition_or_refused():
    q, sinks = heads(4, 5).requires_grad_(), torch.randn(4, dtype=torch.float64)
    twice = lambda f: torch.func.jvp(torch.func.grad(f), (q.detach(),), (q.detach(),))  # noqa: E731
    f = lambda path: lambda x: attend(x, x, x, NoPE(), sinks=sinks, implementation=path).sum()  # noqa: E731
    torch.testing.assert_close(twice(f("auto")), twice(f("reference")))
    with pytest.raises(RuntimeError, match="attention with sinks has no second derivative"):
        torch.autograd.grad(f("auto")(q), q, create_graph=True)


# Dropout


DROPPED = [
    (path, name)
    for path, name in product(("auto", "reference", "blocks", "sdpa"), ENCODINGS)
    if path != "sdpa" or name in ("NoPE", "RoPE")
]


@pytest.mark.parametrize(("path", "name"), DROPPED)
def test_dropout_keeps_a_weight_or_makes_it_0(path, name):
    encoding, pos = ENCODINGS[name]().double(), torch.arange(40)
    q, one_hot = heads(4, 40), torch.eye(40, dtype=torch.float64).expand(2, 4, 40, 40)
    if "by_weight" in encoding.acts_on:
        encoding.relative_values.data.zero_()  # what is left shows the weights
        one_hot = one_hot[..., :DIM]
    weights = attend(q, q, one_hot, encoding, pos, mask=masks.causal())
    some = attend(
        q, q, one_hot, encoding, pos, mask=masks.causal(), implementation=path, dropout=0.25
    )
    kept = some != 0
    torch.testing.assert_close(some, (weights / 0.75) * kept)
    assert abs(float(kept.double().sum() / (weights != 0).sum()) - 0.75) < 0.03


def test_dropout_falls_on_what_is_added_by_weight_too():
    shaw, q, pos = Shaw(DIM).double(), heads(4, 30), torch.arange(30)
    torch.manual_seed(3)
    out = attend(q, q, q, shaw, implementation="reference", dropout=0.5)
    torch.manual_seed(3)
    only = attend(q, q, torch.zeros_like(q), shaw, implementation="reference", dropout=0.5)
    shaw.relative_values.data.zero_()
    torch.manual_seed(3)
    torch.testing.assert_close(
        out - only, attend(q, q, q, shaw, pos, implementation="reference", dropout=0.5)
    )


@pytest.mark.parametrize("path", ["reference", "blocks", "sdpa"])
@pytest.mark.parametrize("sinks", [False, True])
def test_gradients_know_which_weights_were_dropped(path, sinks):
    """Blocks make their weights a second time for the gradients: the same must be dropped."""
    if sinks and path == "sdpa":
        return
    q, k, v = (torch.randn(1, 2, 7, 2, dtype=torch.float64, requires_grad=True) for _ in range(3))
    more = {"sinks": torch.randn(2, dtype=torch.float64, requires_grad=True)} if sinks else {}

    def f(*inputs):
        torch.manual_seed(5)
        given = dict(zip(more, inputs[3:], strict=True))
        return attend(*inputs[:3], NoPE(), implementation=path, dropout=0.4, **given)

    assert torch.autograd.gradcheck(f, (q, k, v, *more.values()))


# The layer


def test_a_layer_drops_while_it_trains():
    x = torch.randn(2, 9, 32)
    layer, plain = SelfAttention(32, 4, RoPE(8), dropout=0.5), SelfAttention(32, 4, RoPE(8))
    plain.load_state_dict(layer.state_dict())
    assert not layer(x).allclose(plain(x))
    assert layer.eval()(x).equal(plain(x))


def test_a_layer_learns_its_sinks_and_caps_its_scores():
    x = torch.randn(2, 9, 32)
    layer = SelfAttention(32, 4, ALiBi(4), sinks=True, softcap=0.3)
    assert layer.state_dict()["sinks"].tolist() == [0.0] * 4
    layer(x, mask=masks.causal()).square().sum().backward()
    assert layer.sinks.grad.abs().min() > 0
    q, k, v = (to(x).unflatten(-1, (4, 8)).transpose(1, 2) for to in (layer.q, layer.k, layer.v))
    out = attend(q, k, v, ALiBi(4), mask=masks.causal(), softcap=0.3, sinks=torch.zeros(4))
    expected = layer.out(out.transpose(1, 2).flatten(2))
    torch.testing.assert_close(layer(x, mask=masks.causal()), expected)


def test_a_layer_without_them_has_what_it_had():
    assert "sinks" not in SelfAttention(32, 4, Sinusoidal(32)).state_dict()


# Errors of paths that do not support an argument


@pytest.mark.parametrize(
    ("path", "encoding", "options", "words"),
    [
        ("sdpa", NoPE(), {"softcap": 1.0}, "torch's kernel .*`softcap`"),
        ("toeplitz", ALiBi(4), {"softcap": 1.0}, "torch's CPU kernel .*`softcap`"),
        ("toeplitz", ALiBi(4), {"dropout": 0.1}, "torch's CPU kernel .*`dropout`"),
        (
            "toeplitz",
            Shaw(8),
            {"sinks": torch.zeros(4)},
            "Shaw .*`sinks`",
        ),
        ("sdpa", NoPE(), {"sinks": torch.zeros(4), "dropout": 0.1}, "`dropout` .*`sinks`"),
        ("flex", NoPE(), {"sinks": torch.zeros(4)}, "FlexAttention .*`sinks`"),
        ("flex", NoPE(), {"dropout": 0.1}, "FlexAttention .*`dropout`"),
    ],
)
def test_a_path_that_cannot_carry_it_says_so(path, encoding, options, words):
    q = heads(4, 5, dtype=torch.float32)
    with pytest.raises(ValueError, match=words.replace("(", r"\(")):
        attend(q, q, q, encoding, implementation=path, **options)
    with torch.no_grad():
        assert explain(q, q, q, encoding, **options).path != path
        assert attend(q, q, q, encoding, **options).isfinite().all()


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"dropout": 1.0}, ValueError, ["`dropout`", "1.0", 0]),
        ({"dropout": -0.1}, ValueError, ["`dropout`", "-0.1"]),
        ({"dropout": math.nan}, ValueError, ["`dropout`", "nan"]),
        ({"dropout": None}, TypeError, ["`dropout`", "None"]),
        ({"softcap": 0.0}, ValueError, ["`softcap`", "0.0"]),
        ({"softcap": "50"}, TypeError, ["`softcap`", "'50'"]),
        ({"sinks": torch.zeros(2)}, ValueError, [4]),
        ({"sinks": 0.0}, ValueError, [4, "0.0"]),
        ({"sinks": torch.zeros(4).long()}, ValueError, ["`sinks`"]),
    ],
)
@pytest.mark.usefixtures("unchecked")
def test_what_does_not_fit_is_refused(options, error, words):
    q = heads(4, 5)
    with refused(error, *words):
        attend(q, q, q, NoPE(), **options)
