"""xPos against its score as a sum of complex numbers in float64, for any centre (F36)."""

import cmath

import pytest
import torch
from refusals import refused

from posenc import RoPE, XPos, attend, masks
from posenc.core.frequencies import frequencies
from posenc.properties import check


def score(q, k, offset, span=512, base=10_000.0):
    """Score one query and one key by their offset alone, one pair of channels at a time."""
    total, dim = 0.0, len(q)
    for j in range(dim // 2):
        zeta = (2 * j + 0.4 * dim) / (1.4 * dim)
        grown = zeta ** (offset / span) * cmath.exp(1j * offset * base ** (-2 * j / dim))
        a, b = (complex(*x[2 * j : 2 * j + 2].tolist()) for x in (q, k))
        total += (a * b.conjugate() * grown).real
    return total


def scores(encoding, q, k, q_pos, k_pos):
    q_at, k_at = encoding.prepare(torch.tensor(q_pos)), encoding.prepare(torch.tensor(k_pos))
    return encoding.on_queries(q, q_at) @ encoding.on_keys(k, k_at).mT


@pytest.mark.parametrize("span", [512, 64])
@pytest.mark.parametrize("centre", [0, 2048, 9])
def test_a_score_is_the_sum_of_the_paper(span, centre):
    q, k = torch.randn(2, 16).unbind()
    encoding = XPos(16, span=span, centre=centre)
    for m, n in ((0, 0), (5, 3), (700, 1), (1000, 1000), (3, 40)):
        made = scores(encoding, q.view(1, 1, 1, 16), k.view(1, 1, 1, 16), [m], [n]).item()
        assert made == pytest.approx(score(q, k, m - n, span), rel=1e-4, abs=1e-5)


def test_scores_are_the_same_wherever_the_text_stands():
    q, k = torch.randn(2, 1, 2, 6, 64).unbind()
    pos = [0, 3, 37, 38, 900, 2000]
    here = scores(XPos(64), q, k, pos, pos)
    behind = torch.ones(6, 6).tril().bool()
    for start in (17, 4095, 13_000):
        there = scores(XPos(64), q, k, [p + start for p in pos], [p + start for p in pos])
        torch.testing.assert_close(there[..., behind], here[..., behind], rtol=1e-5, atol=1e-4)


def test_the_centre_cancels():
    q, k = torch.randn(2, 1, 2, 4, 64).unbind()
    pos = [0, 1, 500, 4095]
    expected = scores(XPos(64, centre=0), q, k, pos, pos)
    for centre in (2048, 4096, -100):
        made = scores(XPos(64, centre=centre), q, k, pos, pos).tril()
        torch.testing.assert_close(made, expected.tril(), rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("start", [0, 3000])
def test_decoding_token_by_token_equals_the_full_pass(start):
    """Keys are turned once, when they come, and cached; a centre that moves would break them."""
    encoding, (q, k, v) = XPos(16), torch.randn(3, 2, 4, 40, 16).unbind()
    at = encoding.prepare(torch.arange(start, start + 40))
    full = attend(q, k, v, encoding, at, mask=masks.causal())
    cache = []
    for token in range(40):
        one = slice(token, token + 1)
        at_one = encoding.prepare(torch.tensor([start + token]))
        cache.append(encoding.on_keys(k[..., one, :], at_one))
        row = encoding.on_queries(q[..., one, :], at_one) @ torch.cat(cache, -2).mT / 4
        torch.testing.assert_close(row.softmax(-1) @ v[..., : token + 1, :], full[..., one, :])


def test_what_fades_behind_grows_ahead():
    rope, encoding = RoPE(16), XPos(16)
    for j in range(8):
        pair = torch.zeros(1, 1, 1, 16)
        pair[..., 2 * j : 2 * j + 2] = 1
        zeta = (2 * j + 0.4 * 16) / (1.4 * 16)
        plain = (rope(pair, pair, torch.tensor([512]))[0] @ pair.mT).item()
        assert scores(encoding, pair, pair, [512], [0]).item() == pytest.approx(zeta * plain, 1e-4)
        assert scores(encoding, pair, pair, [0], [512]).item() == pytest.approx(plain / zeta, 1e-4)
        assert scores(encoding, pair, pair, [512], [512]).item() == pytest.approx(2)


def test_pairs_may_sit_in_either_layout():
    q, k = torch.randn(2, 1, 2, 3, 8).unbind()
    to_half, pos = [0, 2, 4, 6, 1, 3, 5, 7], [0, 5, 70]
    half = scores(XPos(8, layout="half"), q[..., to_half], k[..., to_half], pos, pos)
    torch.testing.assert_close(half, scores(XPos(8), q, k, pos, pos))


def test_a_span_without_end_is_rope():
    q, k = torch.randn(2, 1, 2, 5, 8).unbind()
    pos = torch.tensor([0, 1, 7, 50, 4095])
    slow = XPos(frequencies(8, 500.0), span=1e12)(q, k, pos)
    torch.testing.assert_close(slow, RoPE(frequencies(8, 500.0))(q, k, pos))


def test_far_texts_want_their_own_centre():
    q, k = torch.randn(2, 1, 1, 4, 64).unbind()
    pos = [0, 1, 500, 4095]
    near = scores(XPos(64), q, k, pos, pos).tril()
    for start in (10**5, 10**6):
        far = [p + start for p in pos]
        made = scores(XPos(64, centre=start + 2048), q, k, far, far).tril()
        torch.testing.assert_close(made, near, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_everything_it_accepts_is_finite_and_keeps_its_precision(dtype):
    encoding = XPos(64)
    last = int(encoding.centre + encoding.reach)
    for p in (last, int(encoding.centre - encoding.reach) + 1):
        x = (100 * torch.randn(1, 1, 1, 64)).to(dtype)
        made = scores(encoding, x, x, [p], [p])
        assert made.isfinite()
        content = (x.double() @ x.double().mT).item()
        few = 1e-5 if dtype == torch.float32 else 2e-2
        assert made.item() == pytest.approx(content, rel=few)
    assert 18_400 < last < 18_500


@pytest.mark.parametrize("path", ["auto", "reference", "sdpa", "blocks"])
@pytest.mark.parametrize("hides", [False, True], ids=["all seen", "causal"])
def test_a_key_as_far_ahead_as_can_be_leaves_numbers_and_gradients_finite(path, hides):
    """A score grows with the distance ahead; hidden or not, it must not overflow."""
    encoding = XPos(16)
    pos = encoding.centre + torch.tensor([-encoding.reach, -5000, 0, 7, 9000, encoding.reach])
    q, k, v = torch.randn(3, 2, 2, 6, 16).unbind()
    leaves = [x.requires_grad_() for x in (q, k, v)]
    mask = masks.causal(pos, pos.clone()) if hides else None
    at = encoding.prepare(pos)
    out = attend(*leaves, encoding, at, mask=mask, implementation=path)
    out.square().sum().backward()
    for made in (out, *(leaf.grad for leaf in leaves)):
        assert made.isfinite().all()


@pytest.mark.parametrize("pos", [10**5, 18_500, -14_400])
def test_says_where_it_ends(pos):
    with refused(IndexError, "16,430", "2,048", "`pos`"):
        XPos(64).prepare(torch.tensor([0, pos]))
    assert XPos(64, span=4096).prepare(torch.tensor([0, pos])).keys.cos.isfinite().all()


def test_float16_is_at_home_within_4096_tokens():
    x, encoding = torch.randn(1, 1, 4096, 64).half(), XPos(64)
    q, k = encoding(x, x)
    assert q.isfinite().all()
    assert k.isfinite().all()
    own = (q.float() * k.float()).sum(-1)
    torch.testing.assert_close(own, x.float().square().sum(-1), rtol=1e-2, atol=0.5)


def test_nothing_is_learned_and_nothing_is_cast():
    x, pos = torch.randn(1, 1, 2, 8), torch.tensor([257, 9999])
    assert not XPos(8).state_dict()
    for cast in ("bfloat16", "half", "double"):
        assert getattr(XPos(8), cast)()(x, x, pos)[1].equal(XPos(8)(x, x, pos)[1])


def test_its_end_is_a_finding_not_a_failure():
    found = check(XPos(16))
    assert found["any_length"].holds is False
    assert "16,430 tokens" in found["any_length"].why


@pytest.mark.parametrize(
    ("says", "wrong"),
    [
        (["`dim`", 2, 7], lambda q: XPos(7)),
        (["`span`", 0], lambda q: XPos(8, span=0)),
        (["`span`", "nan"], lambda q: XPos(8, span=float("nan"))),
        (["`freqs`", "(2, 4)"], lambda q: XPos(torch.ones(2, 4))),
        (["'interleaved'", "'half'", "'neox'"], lambda q: XPos(8, layout="neox")),
        ([6, "`x`", 8], lambda q: XPos(6)(q, q)),
        ([5, 2, 4], lambda q: XPos(8)(q, q, torch.arange(4))),
    ],
)
def test_says_what_does_not_fit(says, wrong, unchecked):
    with refused(ValueError, *says):
        wrong(torch.randn(2, 3, 5, 8))
