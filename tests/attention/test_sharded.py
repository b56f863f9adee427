"""Attention of shards against that of the whole text in one process, however it is shared out."""

import multiprocessing
import os
import subprocess
import sys
from functools import cache

import pytest
import torch
import torch.distributed as dist
from thorough import THOROUGH
from torch.testing._internal.distributed.fake_pg import FakeStore

from posenc import ALiBi, FoX, RoPE, Sum, T5Bias, attend, frequencies
from posenc.attention import sharded
from posenc.attention.sharded import attend_sharded, gathered
from posenc.core.masks import causal, documents, padding, window

pytestmark = pytest.mark.slow
HEADS, DIM, VALUE = 2, 8, 6


def encodings():
    torch.manual_seed(1)
    return {
        "rope": RoPE(frequencies(DIM, 500.0), learned=True),
        "alibi": ALiBi(HEADS),
        "t5": T5Bias(HEADS, bidirectional=False),
        "sum": Sum(RoPE(DIM), T5Bias(HEADS), ALiBi(HEADS)),
    }


WAYS = ("in one piece", "head and tail", "document by document")


def shares(tokens, ranks, way):
    """The tokens of each rank, (rank, token), of a row of two documents."""
    every = torch.arange(tokens)
    if way == "in one piece":
        return every.view(ranks, -1)
    documents = [every] if way == "head and tail" else every.chunk(2)
    return torch.cat([head_and_tail(one, ranks) for one in documents], -1)


def head_and_tail(tokens, ranks):
    """Of 2R pieces, rank r has number r, and number r from the end: causal work is alike."""
    pieces = tokens.view(2 * ranks, -1)
    return torch.cat((pieces[:ranks], pieces.flip(0)[:ranks]), -1)


@cache
def text(tokens):
    """q, k, v, the weights of a sum of outputs; positions and ids of two documents in a row."""
    random, batch = torch.Generator().manual_seed(tokens), 2 if tokens < 100 else 1
    q, k, v, weight = (
        torch.randn(batch, HEADS, tokens, channels, generator=random)
        for channels in (DIM, DIM, VALUE, VALUE)
    )
    ids = torch.arange(tokens) // (tokens // 2)
    return (q, k[:, :1], v[:, :1], weight), torch.arange(tokens) % (tokens // 2), ids


def whole(encoding, tokens):
    """Output, and gradients of q, k, v and weights, of one process."""
    (q, k, v, weight), pos, ids = text(tokens)
    q, k, v = (x.clone().requires_grad_() for x in (q, k, v))
    encoding.zero_grad()
    out = attend(q, k, v, encoding, pos, mask=documents(ids) & causal(pos))
    (out * weight).sum().backward()
    return out.detach(), [q.grad, k.grad, v.grad], [x.grad for x in encoding.parameters()]


def shard(encoding, tokens, own, group=None, **how):
    """Output of the tokens `own`, of their leaves q, k and v."""
    (q, k, v, weight), pos, ids = text(tokens)
    leaves = [x[:, :, own].clone().requires_grad_() for x in (q, k, v)]
    k_pos, k_ids = gathered(pos[own], -1, group), gathered(ids[own], -1, group)
    mask = documents(ids[own], k_ids) & causal(pos[own], k_pos)
    out = attend_sharded(*leaves, encoding, pos[own], k_pos, mask, group, **how)
    (out * weight[:, :, own]).sum().backward()
    return out.detach(), leaves


def four(rank, store):
    """The work of one of four processes: every encoding, in every order."""
    dist.init_process_group("gloo", f"file://{store}", rank=rank, world_size=4)
    torch.set_num_threads(1)
    for way in WAYS:
        own = shares(32, 4, way)[rank]
        for encoding in encodings().values():
            expected, grads, of_weights = whole(encoding, 32)
            encoding.zero_grad()
            out, leaves = shard(encoding, 32, own)
            torch.testing.assert_close(out, expected[:, :, own])
            for x, y in zip(leaves, grads, strict=True):
                torch.testing.assert_close(x.grad, y[:, :, own])
            for x, y in zip(encoding.parameters(), of_weights, strict=True):
                dist.all_reduce(x.grad)
                torch.testing.assert_close(x.grad, y)
    os.write(1, b"alike\n")  # one write, which those of the other three cannot come between
    dist.barrier()
    dist.destroy_process_group()


def test_four_processes_attend_as_one(tmp_path):
    """Forward and backward, of q, k, v and learned weights, keys shared by heads."""
    asked = subprocess.run(
        [sys.executable, __file__, str(tmp_path / "store")],
        capture_output=True, text=True, timeout=600,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    assert (asked.stdout, asked.stderr, asked.returncode) == ("alike\n" * 4, "", 0)


# Every rank does the same work: 64 of them, with more tokens each, show what 1,024 show.
RANKS, LONGER = (1024, 1) if THOROUGH else (64, 8)


@pytest.fixture
def many():
    """This process, as one of many whose others do not exist."""
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=RANKS)
    yield RANKS
    dist.destroy_process_group()


@pytest.mark.parametrize(("way", "each"), [("head and tail", 2), ("document by document", 4)])
def test_many_ranks_attend_as_one(way, each, many, monkeypatch):
    """What other ranks would send is filled in, and what goes back to them is summed."""
    tokens, encoding = each * LONGER * many, encodings()["sum"]  # RoPE, T5 and ALiBi
    every = shares(tokens, many, way)
    expected, grads, of_weights = whole(encoding, tokens)
    encoding.zero_grad()
    (_, k, v, _), pos, ids = text(tokens)
    order = every.flatten()
    # what `shard` gathers, in this order; the axis of tokens is the first
    wholes = [pos[order], ids[order], k[:, :, order].movedim(2, 0), v[:, :, order].movedim(2, 0)]
    backs = {DIM: 0, VALUE: 0}  # gradients of keys and of values, in the order of ranks

    def all_gather(out, x, group):
        out.copy_(next(sent))
        assert torch.equal(out.view(many, *x.shape)[rank], x)

    def reduce_scatter(out, x, group):
        backs[x.shape[-1]] += x
        out.zero_()

    monkeypatch.setattr(sharded.dist, "all_gather_single", all_gather)
    monkeypatch.setattr(sharded.dist, "reduce_scatter_single", reduce_scatter)
    for rank, own in enumerate(every):  # noqa: B007  `all_gather` reads it
        sent = iter(wholes)
        out, (q, _, _) = shard(encoding, tokens, own)
        torch.testing.assert_close(out, expected[:, :, own], atol=2e-6, rtol=0)
        torch.testing.assert_close(q.grad, grads[0][:, :, own], atol=2e-6, rtol=0)
    for back, grad in zip(backs.values(), grads[1:], strict=True):
        expected = grad[:, :, order].movedim(2, 0)
        torch.testing.assert_close(back, expected, atol=2e-5, rtol=1e-4)
    for x, y in zip(encoding.parameters(), of_weights, strict=True):
        torch.testing.assert_close(x.grad, y, atol=1e-4, rtol=1e-4)


def test_a_mask_by_storage_is_refused():
    x = torch.zeros(1, HEADS, 4, DIM)
    for mask in (causal(), window(3), padding([4]), causal() & documents(torch.zeros(4).long())):
        with pytest.raises(ValueError, match="`mask` must be made of positions or ids"):
            attend_sharded(x, x, x, ALiBi(HEADS), torch.arange(4), mask=mask)


def test_an_encoding_that_reads_what_came_before_is_refused():
    x = torch.zeros(1, HEADS, 4, DIM)
    encoding = Sum(RoPE(DIM), FoX(HEADS * DIM, HEADS))
    with pytest.raises(ValueError, match="`encoding` must go by positions, FoX reads the tokens"):
        attend_sharded(x, x, x, encoding, torch.arange(4))


def test_points_are_gathered_by_token(many):
    """By the fake group, which sends nothing: shapes alone."""
    x = torch.zeros(1, HEADS, 2, DIM)
    encoding = RoPE(torch.ones(2, DIM // 2))
    assert encoding.axes == 2
    out = attend_sharded(x, x, x, encoding, torch.zeros(2, 2).long())
    assert out.shape == x.shape


if __name__ == "__main__":  # torch is imported once, and no thread runs yet
    fork = multiprocessing.get_context("fork")
    every = [fork.Process(target=four, args=(rank, sys.argv[1])) for rank in range(4)]
    for process in every:
        process.start()
    for process in every:
        process.join()
    sys.exit(max(process.exitcode != 0 for process in every))
