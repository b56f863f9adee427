"""One new token in many layers, against `attend` in each of them."""

from itertools import product

import pytest
import torch
from refusals import refused

from posenc import (
    CATALOG,
    ALiBi,
    CoPE,
    DeBERTa,
    Kerple,
    NoPE,
    RoPE,
    Shaw,
    Sum,
    T5Bias,
    TransformerXL,
    attend,
    explain,
    masks,
)
from posenc.attention.decoding import Decoding
from posenc.core.positions import sequence

BY_DISTANCE = ["NoPE", "ALiBi", "T5", "KERPLE", "FIRE"]
CARDS = {card.name: card.make for card in CATALOG if card.name in BY_DISTANCE}
CARDS["Sum"] = lambda dim, heads: Sum(ALiBi(heads), T5Bias(heads))


def new_token(dtype=torch.float32, groups=2, value=8):
    q, k = torch.randn(3, 4, 1, 8, dtype=dtype), torch.randn(3, groups, 9, 8, dtype=dtype)
    return q, k, torch.randn(3, groups, 9, value, dtype=dtype)


@pytest.mark.parametrize("make", CARDS.values(), ids=CARDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@torch.no_grad()
def test_each_layer_has_what_attend_gives(make, dtype):
    encoding = make(8, 4)
    decoding = Decoding(encoding, encoding.prepare(sequence(1, 8)), encoding.prepare(sequence(9)))
    for scale in (0.3, 0.3, 0.1):
        q, k, v = new_token(dtype)
        out = decoding.attend(q, k, v, scale)
        expected = attend(q, k, v, encoding, decoding.at, decoding.k_at, scale=scale)
        torch.testing.assert_close(out, expected)
    assert len(decoding.rows) == 2


class Asked(ALiBi):
    """ALiBi that counts how often its bias is computed."""

    times = 0

    def on_scores(self, *given):
        self.times += 1
        return super().on_scores(*given)


@torch.no_grad()
def test_the_row_of_a_bias_is_computed_once_for_all_layers():
    encoding = Asked(4)
    decoding = Decoding(encoding, sequence(1, 8), sequence(9))
    for _ in range(5):
        decoding.attend(*new_token(), scale=0.3)
    assert encoding.times == 1


@pytest.mark.parametrize(
    ("encoding", "scale", "value"),
    [
        (CoPE(8), 0.3, 8),  # goes by content
        (Shaw(8), 0.3, 8),  # adds to the values
        (RoPE(8), 0.3, 8),  # turns: queries and keys are to be encoded
        (ALiBi(4), -0.3, 8),
        (ALiBi(4), 0.3, 6),
    ],
    ids=str,
)
@torch.no_grad()
def test_what_takes_more_than_the_kernel_is_left_to_attend(encoding, scale, value):
    decoding = Decoding(encoding, encoding.prepare(sequence(1, 8)), encoding.prepare(sequence(9)))
    for _ in range(2):
        q, k, v = new_token(value=value)
        expected = attend(
            q, k, v, encoding, decoding.at, decoding.k_at, scale=scale, implementation="reference"
        )
        out = decoding.attend(q, k, v, scale)
        torch.testing.assert_close(out, expected, rtol=1e-4, atol=1e-5)
    assert decoding.rows[scale] == (False, None)


def test_gradients_and_what_maps_over_tensors_are_left_to_attend():
    decoding, (q, k, v) = Decoding(ALiBi(4), sequence(1, 8), sequence(9)), new_token()
    q.requires_grad_()
    assert torch.autograd.grad(decoding.attend(q, k, v, 0.3).sum(), q)[0].ne(0).any()
    with torch.no_grad():
        mapped = torch.func.vmap(lambda q: decoding.attend(q[None], k[:1], v[:1], 0.3)[0])(q)
        torch.testing.assert_close(mapped[:1], decoding.attend(q[:1], k[:1], v[:1], 0.3))


@torch.no_grad()
def test_the_first_layer_says_what_does_not_fit(unchecked):
    q, k, v = new_token()
    with refused(ValueError, 3):
        Decoding(ALiBi(3), sequence(1, 8), sequence(9)).attend(q, k, v)
    with refused(ValueError, 8, 9):
        Decoding(ALiBi(4), sequence(1, 8), sequence(8)).attend(q, k, v)


def steps(encoding, at, k_at, mask=None, count=5, dtype=torch.float32, **how):
    """Calls of several layers, by `auto` and as defined."""
    for _ in range(count):
        q, k, v = new_token(dtype)
        yield [
            attend(q, k, v, encoding, at, k_at, mask, implementation=path, **how)
            for path in ("auto", "reference")
        ]


@pytest.mark.parametrize("make", CARDS.values(), ids=CARDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@torch.no_grad()
def test_layers_that_share_positions_have_what_the_definition_gives(make, dtype):
    encoding, pos, k_pos = make(8, 4), sequence(1, 8), sequence(9)
    at, k_at = encoding.prepare(pos), encoding.prepare(k_pos)
    for scale in (None, 0.3, -0.3, 0.0):
        for mask in (None, masks.causal(pos, k_pos), masks.causal(pos - 4, k_pos)):
            for ours, expected in steps(encoding, at, k_at, mask, dtype=dtype, scale=scale):
                torch.testing.assert_close(ours, expected, rtol=1e-4, atol=1e-5)
    for how in ({"softcap": 2.0}, {"sinks": torch.zeros(4, dtype=dtype)}):
        for ours, expected in steps(encoding, at, k_at, dtype=dtype, **how):
            torch.testing.assert_close(ours, expected, rtol=1e-4, atol=1e-5)


class Scaled(Kerple):
    """KERPLE times a buffer, as soon as it has one."""

    def of_distance(self, h, δ):
        return super().of_distance(h, δ) * getattr(self, "times", 1.0)


CONTENT = {
    "Shaw": lambda: Shaw(8, reach=3),
    "Shaw, reach 0": lambda: Shaw(8, reach=0),
    "Shaw, all near by": lambda: Shaw(8, reach=30),
    "DeBERTa": lambda: DeBERTa(8, 4, reach=3),
    "DeBERTa, all near by": lambda: DeBERTa(8, 4, reach=30, released=True),
    "DeBERTa, one term": lambda: DeBERTa(8, 4, reach=3, terms=("p2c",)),
    "Transformer-XL": lambda: TransformerXL(8, 4),
    "Sum": lambda: Sum(Shaw(8, reach=3), ALiBi(4)),
}


@pytest.mark.parametrize(
    ("pos", "k_pos"),
    [
        (sequence(1, 700), sequence(9, 692)),  # a later window of a longer text
        (sequence(1, 16), 2 * sequence(9)),
        (sequence(1, 4), sequence(9)),  # keys ahead
        (sequence(1, 2**20), sequence(9)),  # further than a table goes
        (sequence(1, 8), sequence(9).flip(0)),
        (sequence(1, 8), torch.tensor([0, 1, 2, 4, 5, 6, 7, 8, 8])),
        (torch.tensor([[8], [3], [9]]), sequence(9).expand(3, 9)),
    ],
    ids=["later", "steps of 2", "ahead", "far", "backwards", "uneven", "of each text"],
)
@pytest.mark.parametrize("name", ["Shaw", "DeBERTa", "Transformer-XL"])
@torch.no_grad()
def test_keys_wherever_they_stand_have_what_the_definition_gives(name, pos, k_pos):
    encoding = CONTENT[name]()
    at, k_at = encoding.prepare(pos), encoding.prepare(k_pos)
    for ours, expected in steps(encoding, at, k_at):
        torch.testing.assert_close(ours, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("make", [*CARDS.values(), *CONTENT.values()], ids=[*CARDS, *CONTENT])
@torch.no_grad()
def test_short_texts_too_are_prepared_once_and_seen_when_weights_change(make):
    """Positions left out or passed, causal or not, batches of one or three, of two lengths."""
    encoding = make(8, 4) if make in CARDS.values() else make()
    for at, tokens in product((None, True), (5, 2)):
        at = at and encoding.prepare(sequence(tokens))
        for _ in range(2):
            for mask, batch in product((None, masks.causal(), masks.window(2)), (3, 1)):
                for _ in range(4):
                    q, (k, v) = (
                        torch.randn(batch, 4, tokens, 8),
                        torch.randn(2, batch, 2, tokens, 8),
                    )
                    ours, expected = (
                        attend(q, k, v, encoding, at, None, mask, implementation=path)
                        for path in ("auto", "reference")
                    )
                    torch.testing.assert_close(ours, expected, rtol=1e-4, atol=1e-5)
            for weight in encoding.parameters():
                weight.data.neg_()


@torch.no_grad()
def test_keys_that_turn_by_head_meet_values_that_heads_share():
    encoding, pos = RoPE(8), torch.arange(20).view(1, 4, 5)
    at = encoding.prepare(pos)
    q, k, v = (torch.randn(2, n, 5, 8) for n in (4, 2, 2))
    expected = attend(q, k, v, encoding, at, implementation="reference")
    torch.testing.assert_close(attend(q, k, v, encoding, at), expected)


@torch.no_grad()
def test_angles_of_bare_positions_are_those_of_the_frequencies_now():
    encoding, pos = RoPE(8, learned=True), sequence(5)
    q = torch.randn(1, 4, 5, 8)
    for part in (encoding, Sum(encoding, NoPE())):
        for _ in range(3):
            for _ in range(3):
                expected = attend(q, q, q, part, pos, implementation="reference")
                torch.testing.assert_close(attend(q, q, q, part, pos), expected)
            encoding.freqs.mul_(2.0)


@pytest.mark.parametrize("encoding", [ALiBi(4), NoPE()], ids=type)
def test_positions_made_and_edited_in_inference_mode_are_as_they_are_now(encoding):
    q, k, v = new_token(groups=4)
    with torch.inference_mode():
        at, k_at = sequence(1, 4), sequence(9)
        mask = masks.causal(at, k_at)
        for _ in range(3):
            for _ in range(3):
                out = attend(q, k, v, encoding, at, k_at, mask)
                expected = attend(q, k, v, encoding, at, k_at, mask, implementation="reference")
                torch.testing.assert_close(out, expected)
            at += 2


@torch.no_grad()
def test_a_part_of_a_sum_may_be_exchanged():
    one, pos, k_pos = Sum(Kerple(4), ALiBi(4)), sequence(1, 8), sequence(9)
    k_at = one.prepare(k_pos)
    bare = k_at.parts[0]
    for part in (one.parts[1], T5Bias(4)):
        one.parts[1] = part
        for ours, expected in steps(one, pos, bare):
            torch.testing.assert_close(ours, expected, rtol=1e-4, atol=1e-5)


def test_gradients_flow_after_layers_without():
    encoding, at, k_at = Kerple(4), sequence(1, 8), sequence(9)
    with torch.no_grad():
        list(steps(encoding, at, k_at))
    for ours, expected in steps(encoding, at, k_at, count=2):
        grads = [torch.autograd.grad(x.square().sum(), encoding.a) for x in (ours, expected)]
        torch.testing.assert_close(*grads, rtol=1e-3, atol=1e-5)


@torch.no_grad()
def test_what_does_not_fit_is_refused_after_calls_that_did():
    encoding, at, k_at = ALiBi(4), sequence(1, 8), sequence(9)
    list(steps(encoding, at, k_at))
    q, k, v = new_token()
    for wrong, message in (
        ((q, k, v.double()), "one dtype"),
        ((q.repeat(1, 2, 1, 1), k, v), "8 heads.* 4 heads"),
        ((q, k[:, :, 1:], v[:, :, 1:]), "8.* 9"),
    ):
        with pytest.raises(ValueError, match=message):
            attend(*wrong, encoding, at, k_at)
    assert explain(q, k, v, encoding, at, k_at).path == "blocks"
