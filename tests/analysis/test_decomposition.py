"""Parts of scores: against the scores themselves, loops over pairs, and formulas written out."""

import math

import pytest
import torch
from refusals import refused
from small_models import minilm, tiny

from posenc import (
    CATALOG,
    ALiBi,
    DeBERTa,
    NoPE,
    RoPE,
    SelfAttention,
    Shaw,
    Sinusoidal,
    Sum,
    T5Bias,
    TransformerXL,
    frequencies,
    masks,
)
from posenc.analysis.capture import capture
from posenc.analysis.decomposition import decompose, of_attended, of_bert, of_layer
from posenc.attention.scores import scores
from posenc.core.positions import folded
from posenc.encodings.temperature import Temperature


def total(found):
    return sum(torch.tensor(part, dtype=torch.float64) for part in found.parts.values())


def made(layer, x, pos=None):
    """Return the output of `attend` for the same layer and input."""
    encoding = layer.encoding
    pos = folded(x.shape[1], encoding.axes) if pos is None else pos
    x = encoding.on_embeddings(x, encoding.prepare(pos))
    q, k = (to(x).unflatten(-1, (-1, 8)).transpose(1, 2) for to in (layer.q, layer.k))
    return scores(encoding, q, k, pos, pos, x=x)[0].detach().double()


@pytest.mark.parametrize("card", CATALOG, ids=lambda card: card.slug)
def test_parts_of_every_encoding_sum_to_the_scores(card):
    layer, x = SelfAttention(32, 4, card.make(8, 4)), torch.randn(1, 9, 32)
    found = of_layer(layer, x)
    # No part, or none that stays the same
    whole = card.name in ("NoPE", "LieRE", "Selective RoPE", "PoPE", "RePo")
    assert len(found.parts) > 1 or whole
    torch.testing.assert_close(total(found), made(layer, x), atol=1e-5, rtol=1e-5)
    assert sum(found.shares.values()) == pytest.approx(1)


@pytest.mark.parametrize(
    "encoding",
    [
        Sum(Sinusoidal(32), ALiBi(4)),
        Sum(Sinusoidal(32), RoPE(8), Temperature(2)),
        Sum(Sinusoidal(32), TransformerXL(8, 4)),
        Sum(RoPE(4, dim=8), Sum(ALiBi(4), T5Bias(4))),
        Sum(TransformerXL(8, 4), Temperature(2)),
        Sum(RoPE(8), Shaw(8, 3)),
        Sum(RoPE(8), RoPE(8, layout="half")),
    ],
    ids=lambda encoding: "+".join(type(part).__name__ for part in encoding),
)
def test_parts_of_sums_sum_to_the_scores(encoding):
    layer, x = SelfAttention(32, 4, encoding, groups=2), torch.randn(1, 9, 32)
    found = of_layer(layer, x)
    torch.testing.assert_close(total(found), made(layer, x), atol=1e-5, rtol=1e-5)


def test_four_terms_are_words_and_positions_projected():
    layer, x = SelfAttention(8, 1, Sinusoidal(8)), torch.randn(1, 5, 8)
    found = of_layer(layer, x)
    with torch.no_grad():
        p = Sinusoidal(8)(torch.zeros(1, 5, 8))[0]
        words = layer.q(x[0]), layer.k(x[0])
        places = p @ layer.q.weight.T, p @ layer.k.weight.T
    for name, q, k in (
        ("content-content", words[0], words[1]),
        ("content-position", words[0], places[1]),
        ("position-content", places[0], words[1]),
        ("position-position", places[0], places[1]),
    ):
        torch.testing.assert_close(torch.tensor(found.parts[name][0]), q @ k.T / 8**0.5)


@pytest.mark.parametrize("layout", ["interleaved", "half"])
def test_bands_of_rope_are_products_of_complex_numbers(layout):
    q, k = torch.randn(2, 1, 1, 4, 8)
    found = decompose(RoPE(8, layout=layout), q, k, bands=2, scale=1.0)
    assert list(found.parts) == ["λ 6.28–62.8", "λ 628–6,283"]
    for pairs, part in zip(((0, 1), (2, 3)), found.parts.values(), strict=True):
        for m in range(4):
            for n in range(4):
                expected = 0.0
                for j in pairs:
                    a, b = (2 * j, 2 * j + 1) if layout == "interleaved" else (j, j + 4)
                    left = complex(q[0, 0, m, a], q[0, 0, m, b])
                    right = complex(k[0, 0, n, a], k[0, 0, n, b])
                    angle = (m - n) / 10000 ** (2 * j / 8)
                    turned = left * right.conjugate() * complex(math.cos(angle), math.sin(angle))
                    expected += turned.real
                assert part[0][m][n] == pytest.approx(expected, abs=1e-5)


def test_channels_that_do_not_turn_are_content():
    q, k = torch.randn(2, 1, 2, 4, 8)
    for trailing, still in ((False, slice(4, 8)), (True, slice(0, 4))):
        found = decompose(RoPE(4, dim=8, trailing=trailing), q, k, bands=1)
        expected = q[0][..., still] @ k[0][..., still].mT / 8**0.5
        torch.testing.assert_close(torch.tensor(found.parts["not rotated"]), expected)


def test_transformer_xls_terms_are_those_of_the_paper():
    xl = TransformerXL(8, 2, width=6)
    q, k = torch.randn(2, 1, 2, 4, 8)
    found = decompose(xl, q, k, scale=1.0)
    w, u, v = (x.detach() for x in (xl.project, xl.u, xl.v))
    for h in range(2):
        for i in range(4):
            for j in range(4):
                waves = [(i - j) / 10000 ** (2 * n / 6) for n in range(3)]
                r = w[h] @ torch.tensor([*map(math.sin, waves), *map(math.cos, waves)])
                for name, left, right in (
                    ("q·k", q[0, h, i], k[0, h, j]),
                    ("u·k", u[h, 0], k[0, h, j]),
                    ("q·r", q[0, h, i], r),
                    ("v·r", v[h, 0], r),
                ):
                    expected = float(left @ right)
                    assert found.parts[name][h][i][j] == pytest.approx(expected, abs=1e-5)


def test_debertas_terms_are_those_of_the_paper():
    deberta = DeBERTa(8, 2, reach=3, width=5)
    q, k = torch.randn(2, 1, 2, 6, 8)
    found = decompose(deberta, q, k, scale=1.0)
    keys, queries = (
        deberta.rows.detach() @ to.detach() for to in (deberta.to_keys, deberta.to_queries)
    )
    clip = lambda offset: min(max(offset + 3, 0), 5)  # noqa: E731
    for i, j in ((0, 0), (5, 1), (2, 4), (0, 5)):
        for name, expected in (
            ("content-content", q[0, 1, i] @ k[0, 1, j]),
            ("content-position", q[0, 1, i] @ keys[1, clip(i - j)]),
            ("position-content", k[0, 1, j] @ queries[1, clip(j - i)]),
        ):
            assert found.parts[name][1][i][j] == pytest.approx(float(expected), abs=1e-5)


def test_alibis_bias_is_its_slope_times_the_distance():
    q, k = torch.randn(2, 1, 4, 5, 8)
    found = decompose(ALiBi(4), q, k, q_pos=torch.tensor([0, 1, 2, 3, 50]))
    assert found.parts["bias of ALiBi"][1][4][0] == pytest.approx(-50 / 16)
    torch.testing.assert_close(
        torch.tensor(found.parts["content-content"]), q[0] @ k[0].mT / 8**0.5
    )


def test_what_is_the_same_for_all_keys_has_no_share_and_hidden_keys_have_no_say():
    q, k = torch.ones(1, 1, 6, 8), torch.ones(1, 1, 6, 8)
    found = decompose(ALiBi(1), q, k)
    assert found.shares == {"content-content": 0, "bias of ALiBi": 1}
    assert found.sizes["content-content"] == 0
    q, k = torch.randn(2, 1, 2, 6, 8)
    seen = torch.ones(6, 6).tril().bool()
    causal = decompose(ALiBi(2), q, k, seen=seen)
    products = (q @ k.mT / 8**0.5)[0]
    rows = [products[h, i, : i + 1] for h in range(2) for i in range(6)]
    squares = torch.cat([(row - row.mean()).square() for row in rows])
    expected = float(squares.mean().sqrt())
    assert causal.sizes["content-content"] == pytest.approx(expected, rel=1e-5)
    layer, x = SelfAttention(16, 2, ALiBi(2)), torch.randn(1, 6, 16)
    assert of_layer(layer, x, mask=masks.causal()).shares != of_layer(layer, x).shares


IDS = torch.tensor([[5, 9, 9, 3, 30, 7, 2]])


def test_captured_queries_and_keys_of_llama_are_taken_apart_into_its_own_scores():
    rope = RoPE(frequencies(8, 500.0), layout="half")
    for one in capture(tiny("Llama"), {"input_ids": IDS}):
        found = of_attended(one, rope)
        assert len(found.parts) == 4
        torch.testing.assert_close(total(found), one.scores()[0].double(), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    "wrong", [RoPE(8, layout="half"), RoPE(frequencies(8, 500.0))], ids=["base", "layout"]
)
def test_another_rotation_than_the_models_is_refused(wrong):
    one = capture(tiny("Llama"), {"input_ids": IDS})[0]
    with refused(ValueError, "self_attn"):
        of_attended(one, wrong)


def test_t5s_own_bias_is_a_part():
    one = capture(tiny("T5Encoder"), {"input_ids": IDS})[1]
    found = of_attended(one)
    torch.testing.assert_close(total(found), one.scores()[0].double(), atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(torch.tensor(found.parts["bias"]), one.bias[0])


def test_berts_first_layer_by_its_formula():
    model, ids = tiny("Bert"), torch.tensor([[5, 9, 9, 3, 30, 7]])
    found, one = of_bert(model, {"input_ids": ids}), capture(model, {"input_ids": ids})[0]
    torch.testing.assert_close(total(found), one.scores()[0].double(), atol=1e-5, rtol=1e-5)
    with torch.no_grad():
        embeddings, first = model.embeddings, model.encoder.layer[0].attention.self
        words = embeddings.word_embeddings(ids[0]) + embeddings.token_type_embeddings.weight[0]
        places = embeddings.position_embeddings.weight[:6]
        i, j, head = 2, 4, slice(8, 16)
        sides = []
        for n, to in ((i, first.query), (j, first.key)):
            x, p = words[n] + places[n], places[n]
            spread = math.sqrt(sum((x - x.mean()) ** 2) / 32 + embeddings.LayerNorm.eps)
            row = (p - p.mean()) / spread * embeddings.LayerNorm.weight
            sides.append((to.weight @ row)[head])
    expected = float(sides[0] @ sides[1]) / 8**0.5
    assert found.parts["position-position"][1][i][j] == pytest.approx(expected, abs=1e-5)


def test_robertas_rows_are_those_that_it_looks_up():
    """The first row of its table belongs to filling; positions begin with the next."""
    model, ids = tiny("Roberta"), torch.tensor([[5, 9, 9, 3]])
    model.embeddings.position_embeddings.weight.data[1:5] = 0
    found = of_bert(model, {"input_ids": ids})
    assert found.sizes["position-position"] == 0
    with refused(TypeError, "LlamaModel", "BertModel"):
        of_bert(tiny("Llama"), {"input_ids": ids})


def test_berts_terms_without_its_table_are_content_alone():
    model = tiny("Bert")
    model.embeddings.position_embeddings.weight.data.zero_()
    found = of_bert(model, {"input_ids": torch.tensor([[5, 9, 9, 3]])})
    assert found.shares["content-content"] == pytest.approx(1)
    assert found.sizes["position-position"] == 0


def test_minilms_first_layer_is_all_four():
    model, tokenizer = minilm()
    inputs = tokenizer("The dog chased another dog.", return_tensors="pt")
    found, one = of_bert(model, inputs), capture(model, inputs)[0]
    torch.testing.assert_close(total(found), one.scores()[0].double(), atol=1e-5, rtol=1e-5)
    assert all(size > 0.1 for size in found.sizes.values())


def test_one_text_at_a_time_and_places_of_both():
    q = torch.randn(2, 1, 4, 8)
    with refused(ValueError, 2):
        decompose(NoPE(), q, q)
    with refused(ValueError, "`q_place`", "`k_place`"):
        decompose(NoPE(), q[:1], q[:1], q_place=q[:1])
