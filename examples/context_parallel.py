"""Context parallelism: several processes share the tokens of one text, with any encoding.

An encoding computes from positions alone, so any split gives the result of one process.
"""

import multiprocessing
import tempfile

import torch
import torch.distributed as dist

from posenc import attend, create, masks

RANKS, TOKENS = 2, 32
PIECES = torch.arange(TOKENS).view(2 * RANKS, -1)
SHARES = [torch.cat((PIECES[rank], PIECES[-1 - rank])) for rank in range(RANKS)]


class Gather(torch.autograd.Function):
    """Gather the shards of all processes along the first axis; gradients return to their shard."""

    @staticmethod
    def forward(ctx, shard):
        ctx.shape = shard.shape
        whole = shard.new_empty(RANKS * shard.shape[0], *shard.shape[1:])
        dist.all_gather_single(whole, shard.contiguous())
        return whole

    @staticmethod
    def backward(ctx, grad):  # type: ignore[override]
        dist.reduce_scatter_single(own := grad.new_empty(ctx.shape), grad.contiguous())
        return own


def run(rank, store, names, errors):
    """Compute attention for one process's tokens, and compare with that of the whole text."""
    dist.init_process_group("gloo", f"file://{store}", rank=rank, world_size=RANKS)
    own, k_pos = SHARES[rank], torch.cat(SHARES)  # positions of the queries, of the gathered keys
    for name in names:
        torch.manual_seed(0)  # the same weights and text in each process
        encoding, whole = create(name, dim=16, heads=4), torch.randn(3, 1, 4, TOKENS, 16)
        shard = whole[..., own, :].requires_grad_()  # q, k and v: (batch, head, token, channel)
        expected = attend(*whole.requires_grad_(), encoding=encoding, mask=masks.causal())
        k, v = (Gather.apply(x.movedim(-2, 0)).movedim(0, -2) for x in shard[1:])
        output = attend(shard[0], k, v, encoding, own, k_pos, masks.causal(own, k_pos))
        (grad,) = torch.autograd.grad(output.square().sum(), shard)
        (due,) = torch.autograd.grad(expected.square().sum(), whole)
        pairs = (output, expected[..., own, :]), (grad, due[..., own, :])
        errors.put((name, rank, *((ours - right).abs().max().item() for ours, right in pairs)))


if __name__ == "__main__":
    names, fresh = ("rope", "alibi", "t5"), multiprocessing.get_context("spawn")
    errors = fresh.Queue()
    with tempfile.TemporaryDirectory() as folder:
        for rank in range(RANKS):
            fresh.Process(target=run, args=(rank, f"{folder}/store", names, errors)).start()
        for name, rank, error, grad_error in sorted(errors.get() for _ in RANKS * names):
            print(f"{name:5} process {rank} differs by {error:.0e}, gradients by {grad_error:.0e}")
