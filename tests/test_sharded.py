"""Sharded training by two processes on the CPU, against the same model in one, step by step."""

import pytest
import ranks

pytestmark = pytest.mark.slow

TRAIN = """
import os, sys, torch, warnings
from copy import deepcopy
from posenc import RoPE, SelfAttention, Shaw, Sum, T5Bias, frequencies
kind, rank, store = sys.argv[1], int(sys.argv[2]), sys.argv[3]
torch.distributed.init_process_group("gloo", f"file://{store}", rank=rank, world_size=2)
torch.manual_seed(0)

class Stack(torch.nn.Module):
    def __init__(self):
        super().__init__()
        every = [
            Sum(RoPE(frequencies(8, 500.0), learned=True), T5Bias(2), Shaw(8)) for _ in range(2)
        ]
        self.layers = torch.nn.ModuleList(SelfAttention(16, 2, one) for one in every)

    def forward(self, x):
        for layer in self.layers:
            x = x + layer(x)
        return x

alone = Stack()
model = deepcopy(alone)
if kind == "fully_shard":
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    mesh = init_device_mesh("cpu", (2,))
    for layer in model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
else:
    from torch.distributed.fsdp import FullyShardedDataParallel
    model = FullyShardedDataParallel(model, use_orig_params=True, device_id=torch.device("cpu"))
steps = [torch.optim.SGD(one.parameters(), 0.1) for one in (model, alone)]
for tokens in (5, 9, 3):
    x = torch.randn(2, tokens, 16)
    for one, step in zip((model, alone), steps):
        step.zero_grad()
        one(x).square().mean().backward()
        step.step()
with torch.no_grad():
    apart = (model(x) - alone(x)).abs().max().item()
moved = alone.layers[0].encoding.parts[0].delta.detach().abs().max().item()
print(apart < 1e-5, moved > 1e-4, {str(p.dtype) for p in model.parameters()})
sys.stdout.flush()
torch.distributed.barrier()
os._exit(0)  # nothing of torch's own taking down is tested here
"""


@pytest.mark.parametrize("kind", ["fully_shard", "FullyShardedDataParallel"])
def test_a_model_with_learned_frequencies_is_sharded(tmp_path, kind):
    """Both refuse parameters of two dtypes: θ is learned in float32, around a start in float64."""
    each = [((TRAIN, kind, rank, tmp_path / "store"), {}) for rank in range(2)]
    said = [process.communicate(timeout=300) for process in ranks.begin(each, tmp_path)]
    assert [out for out, _ in said] == ["True True {'torch.float32'}\n"] * 2, said
