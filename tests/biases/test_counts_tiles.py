"""Attention by counts, near and far apart, against the reference, which counts every key.

Queries count quickly, slowly, not at all, or each head in its own way; the far keys are none, some
or nearly all.
"""

import pytest
import torch
from engine_threads import two_threads

from posenc import CoPE, RoPE, Sum, attend, explain, masks
from posenc.attention.cpu import engine
from posenc.attention.cpu.kernel import flash
from posenc.biases import counts
from posenc.core.positions import sequence

HEADS, DIM, TOKENS = 4, 8, 90
# Numbers added to q · k · scale of each head; a gate is the sigmoid of the sum
GATES = {
    "halves": torch.zeros(HEADS),
    "ones": torch.full((HEADS,), 40.0),
    "zeros": torch.full((HEADS,), -40.0),
    "slow": torch.full((HEADS,), -3.0),
    "differ by head": torch.tensor([-40.0, -2.0, 0.0, 9.0]),
}
gated = pytest.mark.parametrize("gates", GATES)


@pytest.fixture(autouse=True)
def few_rows(monkeypatch):
    """Use blocks of 16 queries, so that a short text has every kind of block."""
    monkeypatch.setattr(counts, "ROWS", 16)


def cope(count=4):
    encoding = CoPE(DIM, count).double()
    torch.nn.init.normal_(encoding.rows)
    return encoding


def heads(gates, queries=TOKENS, keys=TOKENS, groups=HEADS, values=DIM, dtype=torch.float64):
    """q, k and v whose products are about those of `GATES`, by their first channel.

    In float64, as a gradient may be a small difference of large numbers.
    """
    q, k, v = (
        torch.randn(2, *sizes, dtype=dtype)
        for sizes in ((HEADS, queries, DIM), (groups, keys, DIM), (groups, keys, values))
    )
    q[..., 0], k[..., 0] = GATES[gates].view(-1, 1), 1.0
    return q, k, v


def outcomes(path, encoding, inputs, *places, **options):
    """The output, and the gradients of q, k, v and what the encoding learns."""
    q, k, v = (x.detach().requires_grad_() for x in inputs)
    out = attend(q, k, v, encoding, *places, implementation=path, **options)
    torch.manual_seed(1)
    learned = [q, k, v, *encoding.parameters()]
    return out, *torch.autograd.grad(out, learned, torch.randn_like(out))


def assert_as_reference(encoding, inputs, *places, tolerance=1e-9, **options):
    options = {"scale": 1.0, "mask": masks.causal(), **options}
    made, expected = (
        outcomes(path, encoding, inputs, *places, **options) for path in ("toeplitz", "reference")
    )
    for x, y in zip(made, expected, strict=True):
        assert x.dtype == y.dtype
        near = tolerance * max(1.0, float(y.detach().abs().max()))
        torch.testing.assert_close(x, y, rtol=5 * tolerance, atol=near)
    with torch.no_grad():
        q, k, v = inputs
        made = attend(q, k, v, encoding, *places, implementation="toeplitz", **options)
    torch.testing.assert_close(made, expected[0], rtol=5 * tolerance, atol=tolerance)


@gated
@pytest.mark.parametrize("count", [2, 4, 20, 200])
def test_any_gates_give_the_reference_and_its_gradients(gates, count):
    assert_as_reference(cope(count), heads(gates))


@gated
@pytest.mark.parametrize("groups", [2, 1])
def test_heads_may_share_keys(gates, groups):
    """With values of other channels than the keys have, fewer and more."""
    assert_as_reference(cope(), heads(gates, groups=groups, values=5))
    assert_as_reference(cope(), heads(gates, groups=groups, values=11))


@gated
@pytest.mark.parametrize("rows", [slice(40, None), slice(17, 50), slice(0, 20)])
def test_queries_may_be_a_part_of_the_text(gates, rows):
    """The queries are a part, as with a cache. Keys after the last query are NaN and masked."""
    pos = sequence(TOKENS)
    q, k, v = heads(gates, len(pos[rows]))
    for x in (k, v):
        x[..., rows.stop or TOKENS :, :] = float("nan")
    mask = masks.causal(pos[rows], pos)
    assert_as_reference(cope(), (q, k, v), pos[rows], pos, mask=mask)


@gated
def test_queries_may_see_all_keys_or_stand_before_them(gates):
    assert_as_reference(cope(), heads(gates, keys=50), sequence(TOKENS), sequence(50), mask=None)
    pos, k_pos = sequence(TOKENS), sequence(50, 10)
    places = pos, k_pos
    assert_as_reference(cope(), heads(gates, keys=50), *places, mask=masks.causal(pos, k_pos))


@pytest.mark.parametrize(
    ("dtype", "tolerance"),
    [(torch.float32, 2e-5), (torch.bfloat16, 2e-2), (torch.float16, 4e-3)],
)
def test_other_dtypes_are_as_near_as_they_can_be(dtype, tolerance):
    inputs = heads("halves", dtype=dtype)
    assert_as_reference(cope().to(dtype), inputs, tolerance=tolerance)


def test_a_rotation_may_come_before_it():
    assert_as_reference(Sum(RoPE(DIM), cope()), heads("halves"))


def test_a_count_that_is_nan_is_of_no_key_that_is_far():
    """A key of NaN spoils the queries that see it, and none before."""
    q, k, v = heads("ones")
    k[:, :, 60] = float("nan")
    with torch.no_grad():
        made, expected = (
            attend(q, k, v, cope(), mask=masks.causal(), implementation=path)
            for path in ("toeplitz", "reference")
        )
    assert made[:, :, 60:].isnan().all()
    assert expected[:, :, 60:].isnan().all()
    assert made[:, :, :48].isfinite().all()  # before the block in which it stands


@torch.no_grad()
def test_no_more_keys_are_near_than_are_counted(monkeypatch):
    """With gates of 1 the far keys are all but three or four behind the first query of a block."""
    far = []
    spy = lambda q, k, *rest: far.append(k.shape[2]) or flash(q, k, *rest)  # noqa: E731
    monkeypatch.setattr(counts, "flash", spy)
    for gates in ("ones", "zeros"):
        q, k, v = heads(gates)
        attend(q, k, v, cope(), mask=masks.causal(), scale=1.0, implementation="toeplitz")
    assert len(far) == 5
    assert all(start - 4 <= keys for start, keys in zip(range(16, 90, 16), far, strict=True))


@torch.no_grad()
def test_few_scores_are_made_at_a_time(monkeypatch):
    """All keys are near if nothing is counted, and then the blocks have fewer queries."""
    sizes = []
    known = counts._near
    monkeypatch.setattr(counts, "MOST_SCORES", 2 * HEADS * 16 * 90)
    monkeypatch.setattr(counts, "FEWEST_ROWS", 2)
    monkeypatch.setattr(
        counts, "_near", lambda *args: sizes.append((near := known(*args)).scores.numel()) or near
    )
    q, k, v = heads("zeros")
    attend(q, k, v, cope(20), mask=masks.causal(), scale=1.0, implementation="toeplitz")
    assert max(sizes) <= counts.MOST_SCORES


REFUSED = {
    "a window": (dict(mask=masks.causal() & masks.window(9)), "the mask hides far keys"),
    "sinks": (dict(sinks=torch.zeros(HEADS)), "`sinks`"),
    "no scale": (dict(scale=0.0), "`scale` is not positive"),
    "padding": (dict(mask=masks.padding([TOKENS, 9])), "not a band along the diagonal"),
}


@pytest.mark.parametrize(("options", "reason"), REFUSED.values(), ids=REFUSED)
def test_what_has_no_far_keys_goes_by_blocks(options, reason):
    said = explain(*heads("halves"), cope(), **options)
    assert reason in said.passed["toeplitz"]
    assert said.path == "blocks"


def test_a_second_derivative_is_refused():
    q, k, v = (x.requires_grad_() for x in heads("halves"))
    out = attend(q, k, v, cope(), mask=masks.causal(), implementation="toeplitz")
    with pytest.raises(RuntimeError, match="attention by counts has no second derivative"):
        torch.autograd.grad(out.sum(), q, create_graph=True)


@pytest.mark.parametrize("groups", [HEADS, 2])
def test_threads_that_share_the_heads_give_what_one_gives(groups, monkeypatch):
    """Held against one thread: heads whose near keys are many and few."""
    encoding, inputs = cope(), heads("differ by head", groups=groups)
    one = outcomes("toeplitz", encoding, inputs, mask=masks.causal())
    with two_threads(monkeypatch):
        assert len(engine.heads_dealt(groups, 1)) == 2
        two = outcomes("toeplitz", encoding, inputs, mask=masks.causal())
        with torch.no_grad():
            alone = attend(*inputs, encoding, mask=masks.causal(), implementation="toeplitz")
    torch.testing.assert_close(two, one)
    torch.testing.assert_close(alone, one[0])
