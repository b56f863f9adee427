"""Calls in any order that share an encoding, positions and masks, against the definition.

What is kept between calls must be what it would be without: the definition is computed each time by
a copy of the encoding, with positions prepared anew. In between, positions and weights are edited
in all the ways that Python allows.
"""

import copy
from contextlib import nullcontext
from random import Random

import pytest
import torch
from thorough import some
from torch import nn

from posenc import (
    FIRE,
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
    XPos,
    attend,
    masks,
)
from posenc.encodings.temperature import Temperature

HEADS, DIM = 4, 16
MAKE = {
    "NoPE": NoPE,
    "ALiBi": lambda: ALiBi(HEADS),
    "T5": lambda: T5Bias(HEADS),
    "KERPLE": lambda: Kerple(HEADS),
    "FIRE": lambda: FIRE(HEADS),
    "Shaw": lambda: Shaw(DIM, reach=5),
    "DeBERTa": lambda: DeBERTa(DIM, HEADS),
    "Transformer-XL": lambda: TransformerXL(DIM, HEADS),
    "CoPE": lambda: CoPE(DIM),
    "RoPE": lambda: RoPE(DIM),
    "RoPE in halves": lambda: RoPE(DIM, layout="half"),
    "xPos": lambda: XPos(DIM),
    "RoPE and ALiBi": lambda: Sum(RoPE(DIM), ALiBi(HEADS)),
    "T5 and Shaw": lambda: Sum(T5Bias(HEADS), Shaw(DIM)),
    "three": lambda: Sum(ALiBi(HEADS), Kerple(HEADS), Temperature(HEADS)),
}
MODES = {"no_grad": torch.no_grad, "inference": torch.inference_mode, "training": nullcontext}
CLOSE = {torch.float32: 2e-4, torch.float64: 2e-5, torch.bfloat16: 4e-2}  # FIRE's logs are float32


def stood(random, queries, keys):
    """Positions of queries and keys: at steps of 1 or 2, anywhere, of each text its own."""
    start = random.choice([0, 0, 5, 1000])
    k_pos = torch.arange(start, start + keys) * random.choice([1, 1, 1, 2])
    if random.random() < 0.1:
        k_pos = k_pos[torch.randperm(keys)]
    pos = k_pos[keys - queries :].clone()
    if random.random() < 0.15:
        texts = torch.tensor([[0], [3]])
        pos, k_pos = pos + texts, k_pos.expand(2, -1).clone()
    return pos, k_pos


def edit_weights(random, encoding):
    names = [name for name, _ in encoding.named_parameters()]
    if not names:
        return
    of, _, name = random.choice(names).rpartition(".")
    module = encoding.get_submodule(of)
    weight = getattr(module, name)
    how = random.choice(["data", "no_grad", "another"])
    if how == "data":
        weight.data.mul_(1.1)
    elif how == "no_grad":
        with torch.no_grad():
            weight.add_(0.05)
    else:
        setattr(module, name, nn.Parameter(weight.detach() * 1.2))


def edited_positions(random, at, pos):
    """Move bare positions, or not, and return where they are; what was prepared stays."""
    if not isinstance(at, torch.Tensor):
        return pos
    by = random.choice([0, 1, 3])
    with torch.inference_mode(at.is_inference()):
        at += by
    return pos + by


@pytest.mark.parametrize("name", MAKE)
@pytest.mark.parametrize("seed", some(range(60), every=12))
def test_calls_in_any_order_are_what_each_is_alone(name, seed):
    random = Random(f"{name} {seed}")
    torch.manual_seed(seed)
    encoding = MAKE[name]()
    queries = random.choice([1, 1, 1, 3, 20, 150])
    keys = queries + random.choice([0, 0, 1, 8, 40, 300])
    pos, k_pos = stood(random, queries, keys)
    made = random.choice(["no_grad", "inference", "training"])
    with MODES[made]():
        at, k_at = encoding.prepare(pos.clone()), encoding.prepare(k_pos.clone())
        mask = random.choice([None, masks.causal(pos.clone(), k_pos.clone())])
    used, dtype, texts, groups = "no_grad", torch.float32, 2, HEADS
    for _ in range(random.randint(8, 14)):
        edited = random.choice(["nothing", "nothing", "nothing", "positions", "weights"])
        if edited == "weights":
            edit_weights(random, encoding)
        if edited == "positions":
            pos, k_pos = edited_positions(random, at, pos), edited_positions(random, k_at, k_pos)
        if random.random() < 0.2:
            used = random.choice(["no_grad", "inference"] + ["training"] * (made != "inference"))
            dtype, groups = random.choice([torch.float32, *CLOSE]), random.choice([4, 2, 1])
            texts = 2 if pos.ndim == 2 else random.choice([1, 2])
        with MODES[used]():
            q = torch.randn(texts, HEADS, queries, DIM, dtype=dtype)
            k, v = torch.randn(2, texts, groups, keys, DIM, dtype=dtype)
            out = attend(q, k, v, encoding, at, k_at, mask)
            alone = copy.deepcopy(encoding)
            again = alone.prepare(pos), alone.prepare(k_pos)
            expected = attend(q, k, v, alone, *again, mask, implementation="reference")
            torch.testing.assert_close(out, expected, rtol=CLOSE[dtype], atol=CLOSE[dtype])
