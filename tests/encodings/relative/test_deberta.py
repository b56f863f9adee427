"""DeBERTa against equation 4 of the paper, pair by pair, and transformers' attention."""

import pytest
import torch
from refusals import refused
from transformers import DebertaConfig, DebertaV2Config
from transformers.models.deberta.modeling_deberta import (
    DisentangledSelfAttention,
    build_relative_position,
)
from transformers.models.deberta_v2.modeling_deberta_v2 import (
    DisentangledSelfAttention as V2Attention,
)
from transformers.models.deberta_v2.modeling_deberta_v2 import make_log_bucket_position

from posenc import DeBERTa, attend


def by_loops(q, k, v, deberta, q_pos, k_pos, scale):
    def delta(a, b):
        if deberta.buckets:
            return by_authors(a - b, deberta.buckets, deberta.reach)
        return min(max(a - b + deberta.reach, 0), 2 * deberta.reach - 1)

    logits = torch.zeros(*q.shape[:-1], k.shape[-2], dtype=torch.float64)
    for b, h, i, j in torch.cartesian_prod(*map(torch.arange, logits.shape)).tolist():
        query, key = q[b, h, i], k[b, h, j]
        by_content = deberta.rows[delta(q_pos[i], k_pos[j])] @ deberta.to_keys[h]
        by_position = deberta.rows[delta(k_pos[j], q_pos[i])] @ deberta.to_queries[h]
        logits[b, h, i, j] = (query @ key + query @ by_content + key @ by_position) * scale
    return logits.softmax(-1) @ v


def loud(*args, **options):
    deberta = DeBERTa(*args, **options).double()
    deberta.rows.data.normal_()
    return deberta


@pytest.mark.parametrize("scale", [None, 1.0])
@pytest.mark.parametrize(("reach", "width"), [(2, None), (50, 6)])
def test_equals_the_three_terms_of_the_paper(reach, width, scale):
    deberta = loud(4, heads=2, reach=reach, width=width)
    q, k, v = torch.randn(3, 2, 2, 6, 4, dtype=torch.float64).unbind()
    with torch.no_grad():
        expected = by_loops(q, k, v, deberta, range(6), range(6), scale or 12**-0.5)
        torch.testing.assert_close(attend(q, k, v, deberta, scale=scale), expected)


def test_keys_may_stand_elsewhere():
    deberta, (q_pos, k_pos) = loud(4, heads=2, reach=8), ([7, 8, 9], [0, 3, 8, 9, 40])
    q, k = (torch.randn(1, 2, n, 4, dtype=torch.float64) for n in (3, 5))
    with torch.no_grad():
        at, k_at = (deberta.prepare(torch.tensor(pos)) for pos in (q_pos, k_pos))
        expected = by_loops(q, k, k, deberta, q_pos, k_pos, 12**-0.5)
        torch.testing.assert_close(attend(q, k, k, deberta, at, k_at), expected)


def test_a_term_may_be_left_out_where_rows_are_narrower_than_a_head():
    deberta, q = DeBERTa(8, heads=2, reach=4, width=3, terms=["p2c"]), torch.randn(1, 2, 9, 8)
    made, expected = (attend(q, q, q, deberta, implementation=i) for i in ("auto", "reference"))
    torch.testing.assert_close(made, expected)


def test_one_query_takes_of_the_rows_those_that_it_meets_and_projects_none_for_itself():
    deberta, at, k_at = DeBERTa(4, heads=2, reach=50), torch.tensor([29]), torch.arange(30)
    q, k = torch.randn(1, 2, 1, 4), torch.randn(1, 2, 30, 4)
    bias = deberta.on_scores(q, k, at, k_at, scale=0.5)
    assert bias.query_table.shape == (30, 8)  # (row, width)
    assert bias.of_keys[2].shape == (2, 30, 4)  # (head, row, channel)


@pytest.mark.parametrize(("term", "reach"), [("c2p", 3), ("c2p", 20), ("p2c", 20)])
def test_each_term_is_that_of_transformers_with_its_weights(term, reach):
    config = DebertaConfig(
        hidden_size=8,
        num_attention_heads=2,
        relative_attention=True,
        max_relative_positions=reach,
        pos_att_type=[term],
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    theirs, ours = DisentangledSelfAttention(config), DeBERTa(4, heads=2, reach=reach)
    rows, offset = torch.randn(2 * reach, 8), torch.arange(2 * reach)
    if term == "c2p":
        projection, used, unused = theirs.pos_proj, ours.to_keys, ours.to_queries
        ours.rows.data.copy_(rows)
    else:  # the authors' code and transformers' look up δ(i, j) here, the paper δ(j, i)
        projection, used, unused = theirs.pos_q_proj, ours.to_queries, ours.to_keys
        projection.bias.data.zero_()
        ours.rows.data.copy_(rows[-offset])
    projection.weight.data.normal_()
    used.data.copy_(projection.weight.data.view(2, 4, 8).mT)
    unused.data.zero_()
    x, mask = torch.randn(1, 6, 8), torch.ones(1, 1, 6, 6)
    q, k, v = theirs.transpose_for_scores(theirs.in_proj(x)).chunk(3, -1)
    offsets = build_relative_position(q, k)
    expected, _ = theirs(x, mask, relative_pos=offsets, rel_embeddings=rows)
    out = attend(q, k, v, ours, scale=8**-0.5)  # two terms, hence √(2d)
    torch.testing.assert_close(out.transpose(1, 2).flatten(2), expected)


@pytest.mark.parametrize("reach", [3, 20])
def test_released_weights_give_what_transformers_makes_of_them(reach):
    config = DebertaConfig(
        hidden_size=8,
        num_attention_heads=2,
        relative_attention=True,
        max_relative_positions=reach,
        pos_att_type=["c2p", "p2c"],
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    theirs, ours = DisentangledSelfAttention(config), DeBERTa(4, 2, reach, released=True)
    theirs.pos_q_proj.bias.data.zero_()
    ours.rows.data.normal_()
    for to, projection in (
        (ours.to_keys, theirs.pos_proj),
        (ours.to_queries, theirs.pos_q_proj),
    ):
        projection.weight.data.normal_()
        to.data.copy_(projection.weight.data.view(2, 4, 8).mT)
    x, mask = torch.randn(1, 9, 8), torch.ones(1, 1, 9, 9)
    q, k, v = theirs.transpose_for_scores(theirs.in_proj(x)).chunk(3, -1)
    offsets = build_relative_position(q, k)
    expected, _ = theirs(x, mask, relative_pos=offsets, rel_embeddings=ours.rows)
    torch.testing.assert_close(attend(q, k, v, ours).transpose(1, 2).flatten(2), expected)


BUCKETS = [(256, 512), (8, 512), (32, 128), (64, 2048), (9, 50), (52, 139)]


def by_authors(offset, buckets, reach):
    """The row of an offset in Microsoft's code as of 2023, in whole numbers."""
    offset, m = min(max(offset, 1 - reach), reach - 1), buckets // 2
    if abs(offset) <= m:
        return offset + buckets
    step = 0  # the least that is (m − 1) ln(|offset| / m) / ln((reach − 1) / m) or more
    while abs(offset) ** (m - 1) * m**step > (reach - 1) ** step * m ** (m - 1):
        step += 1
    return (m + step if offset > 0 else -m - step) + buckets


@pytest.mark.parametrize(("buckets", "reach"), BUCKETS)
def test_buckets_are_those_of_the_authors_and_the_last_is_that_of_every_distance_beyond(
    buckets, reach
):
    offsets = [*range(-reach - 20, reach + 20), -3 * reach, 3 * reach]
    expected = [by_authors(offset, buckets, reach) for offset in offsets]
    rows = DeBERTa(4, 2, reach, buckets=buckets).delta(torch.tensor(offsets))
    assert rows.tolist() == expected
    assert rows.min() == 2 * buckets - rows.max() > 0  # no distance has row 0


def test_texts_longer_than_the_reach_equal_the_three_terms_with_the_authors_buckets():
    deberta = loud(4, heads=2, reach=8, buckets=6)
    q, k, v = torch.randn(3, 1, 2, 30, 4, dtype=torch.float64).unbind()
    with torch.no_grad():
        expected = by_loops(q, k, v, deberta, range(30), range(30), 12**-0.5)
        torch.testing.assert_close(attend(q, k, v, deberta), expected)


@pytest.mark.parametrize(("buckets", "reach"), BUCKETS[:4])
def test_unclamped_buckets_are_those_of_transformers(buckets, reach):
    offsets = torch.arange(-3 * reach, 3 * reach + 1)
    expected = make_log_bucket_position(offsets, buckets, reach).long()
    deberta = DeBERTa(4, 2, reach, buckets=buckets, clamped=False)
    expected = (expected + buckets).clamp(0, 2 * buckets - 1)
    assert torch.equal(deberta.delta(offsets), expected)


def test_version_3_is_that_of_transformers():
    """With shared projections, as DeBERTaV3 has them, and texts longer than its reach."""
    options = {"hidden_size": 8, "num_attention_heads": 2, "relative_attention": True}
    config = DebertaV2Config(
        **options,
        position_buckets=8,
        max_relative_positions=30,
        pos_att_type=["p2c", "c2p"],
        share_att_key=True,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    theirs = V2Attention(config)
    ours = DeBERTa(4, 2, 30, released=True, buckets=8, clamped=False)
    ours.rows.data.normal_()
    for to, projection in (
        (ours.to_keys, theirs.key_proj),
        (ours.to_queries, theirs.query_proj),
    ):
        projection.bias.data.zero_()
        to.data.copy_(projection.weight.data.view(2, 4, 8).mT)
    x, mask = torch.randn(1, 40, 8), torch.ones(1, 40, 40)
    q, k, v = (
        p(x).view(1, 40, 2, 4).transpose(1, 2)
        for p in (theirs.query_proj, theirs.key_proj, theirs.value_proj)
    )
    expected, _ = theirs(x, mask, rel_embeddings=ours.rows)
    torch.testing.assert_close(attend(q, k, v, ours).transpose(1, 2).flatten(2), expected)


@pytest.mark.parametrize("buckets", [1, 2, 1022, 5000])
def test_impossible_buckets_are_refused(buckets):
    with refused(ValueError, 3, 1021):
        DeBERTa(4, 2, reach=512, buckets=buckets)


def test_rows_can_be_shared_among_layers():
    bottom, top = DeBERTa(4, heads=2), DeBERTa(4, heads=2)
    top.rows = bottom.rows
    q = torch.randn(1, 2, 5, 4)
    (attend(q, q, q, bottom) + attend(q, q, q, top)).sum().backward()
    assert top.rows.grad is bottom.rows.grad


def test_terms_are_c2p_p2c_or_both():
    for terms in ("c2p", (), ("c2p", "p2p")):
        with refused(ValueError, "`terms`", "'c2p'", "'p2c'"):
            DeBERTa(4, 2, terms=terms)
