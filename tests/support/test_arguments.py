"""Errors for beginners' wrong calls, each against the sentence that it should get.

Each message names the argument, its value and the remedy; none comes from torch or Python, and none
of these calls returns numbers.
"""

import math
import re

import numpy as np
import pytest
import torch
from refusals import refused, stating

import posenc
from posenc import CATALOG, NoPE, attend, frequencies
from posenc.encodings.rotary import dinov3, extension
from posenc.encodings.temperature import Temperature

nan, inf = math.nan, math.inf
q = torch.randn(2, 4, 5, 8)
x, pos, theta = torch.randn(2, 5, 8), torch.arange(5), frequencies(8)


def given(encoding=None, **options):
    return attend(q, q, q, NoPE() if encoding is None else encoding, **options)


NAMES = {name: getattr(posenc, name) for name in posenc.__all__} | {
    **{"nan": nan, "inf": inf, "q": q, "x": x, "pos": pos, "theta": theta, "given": given},
    **{"np": np, "torch": torch, "Temperature": Temperature},
    **{"dinov3": dinov3, "extension": extension},
}

CALLS = {  # the call, as a beginner writes it -> facts of the message
    # An encoding that is none
    'attend(q, q, q, "rope")': ["`encoding`", "'rope'", "`posenc.create`"],
    "attend(q, q, q, RoPE)": ["`encoding`", "RoPE"],
    "attend(q, q, q, None)": ["`encoding`", "None"],
    "attend(q, q, q, theta)": ["`encoding`", "(4,)"],
    "attend(q, q, q, [RoPE(8)])": ["`encoding`"],
    "attend(RoPE(8), q, q, q)": ["`q`", "RoPE"],
    "attend(q, q, RoPE(8), q)": ["`v`", "RoPE"],
    "SelfAttention(32, 4, 3.5)": ["`encoding`", "3.5"],
    "SelfAttention(32, 4, RoPE)": ["`encoding`", "RoPE"],
    "SelfAttention(32, RoPE(8), 4)": ["`encoding`", 4],
    "Sum([RoPE(8), ALiBi(4)])": ["`Sum`", "`Sum(*encodings)`"],
    "Sum(RoPE, ALiBi)": ["`Sum`", "RoPE"],
    'Sum("rope", "alibi")': ["`Sum`", "'rope'"],
    "Sum(RoPE(8), None)": ["`Sum`", "None"],
    'properties.check("rope")': ["`encoding`", "'rope'"],
    "properties.check(RoPE)": ["`encoding`", "RoPE"],
    'explain(q, q, q, "rope")': ["`encoding`"],
    # Positions that are none
    "RoPE(8).prepare([0, 1, 2])": ["`pos`", "`torch.tensor(…)`"],
    "ALiBi(4).prepare(range(5))": ["`pos`"],
    "Sinusoidal(8).prepare(5)": ["`pos`", 5],
    "NoPE().prepare(np.arange(5))": ["`pos`"],
    'Learned(9, 8).prepare("abc")': ["`pos`", "'abc'"],
    "Shaw(8).prepare(None)": ["`pos`", "None"],
    "TransformerXL(8, 4).prepare((0, 1))": ["`pos`"],
    "XPos(8).prepare([0, 1])": ["`pos`"],
    "Mixed(8, 4).prepare([[0, 1]])": ["`pos`"],
    "Temperature(8).prepare([1])": ["`pos`"],
    "Binary(8).prepare([1])": ["`pos`"],
    "Normalized(8).prepare([1])": ["`pos`"],
    "Sine(8).prepare(range(3))": ["`pos`"],
    "Integer(8).prepare([1])": ["`pos`"],
    "RoPE(8).prepare(torch.tensor(3))": ["`pos`", 3],
    "RoPE(8).prepare(pos + 0j)": ["`pos`", "complex64"],
    "RoPE(8).prepare(pos.bool())": ["`pos`"],
    "RoPE(8).prepare(pos.half())": ["`pos`", "float16", 2048],
    "RoPE(8).prepare(torch.tensor([0, nan]))": ["`pos`", "nan"],
    "ALiBi(4).prepare(torch.tensor([0, inf]))": ["`pos`", 0, "inf"],
    "Sinusoidal(8).prepare(torch.tensor([-inf, 0]))": ["`pos`", "inf", 0],
    "FIRE(4).prepare(torch.tensor([nan, 0]))": ["`pos`", "nan"],
    "T5Bias(4).prepare(torch.tensor([2.0**24 + 2]))": ["float32", "16,777,216"],
    "XPos(8).prepare(torch.tensor([2.0**30]))": ["`pos`", "1.07374e+09", "float32", "16,777,216"],
    "Sine(8).prepare(torch.tensor([2.0**54]).double())": ["float64"],
    "RoPE(8).prepare(torch.tensor([2**63], dtype=torch.uint64))": ["`pos`", 1],
    "given(RoPE(8), at=[0, 1, 2, 3, 4])": ["`at`"],
    "given(ALiBi(4), at=range(5))": ["`at`"],
    "given(NoPE(), at=np.arange(5))": ["`at`"],
    "given(Sum(RoPE(8), ALiBi(4)), at=[0, 1])": ["`at`", "Sum"],
    "given(RoPE(8), at=pos, k_at=5)": ["`k_at`", 5],
    "given(ALiBi(4), at=RoPE(8).prepare(pos))": ["`at`", "ALiBi", "Turn"],
    "given(RoPE(8), at=XPos(8).prepare(pos))": ["`prepare`", "RoPE", "Stretch"],
    "given(Sum(ALiBi(4)), at=RoPE(8).prepare(pos))": ["`prepare`", "Sum"],
    "given(Sum(RoPE(8), NoPE()), at=(pos,))": ["`prepare`", "Sum"],
    "given(ALiBi(4), at=torch.tensor([0, 1, 2, 3, nan]))": ["`pos`", "nan"],
    "given(ALiBi(4), at=pos.bfloat16())": [256],
    # Positions of each head
    "given(ALiBi(4), at=pos.expand(2, 8, 5))": ["`pos`", 8, "`q`", 4],
    "given(RoPE(8), at=pos.expand(1, 2, 4, 5))": ["(1, 2, 4, 5)"],
    "given(ALiBi(4), at=pos.expand(1, 2, 4, 5))": ["(1, 2, 4, 5)"],
    "given(Mixed(8, 4), at=pos.view(1, 1, 5, 1).expand(1, 3, 5, 2))": ["`pos`", 3],
    "given(RoPE(8), at=pos.expand(1, 3, 5))": [3, "`x`", 4],
    "given(NoPE(), at=pos.expand(1, 3, 5))": ["`at`", 3, 4],
    "given(Shaw(8), at=pos.expand(2, 3, 5))": ["`at`", 3, 4],
    "given(XPos(8), at=pos.expand(3, 4, 5))": ["XPos", 5, 3, 2],
    "given(Temperature(8), at=pos.expand(1, 3, 5))": [3, "`x`", 4],
    "given(Sum(RoPE(8), ALiBi(4)), at=pos.expand(1, 3, 5))": ["`at`", 3, 4],
    "given(TransformerXL(8, 4), at=pos.expand(2, 3, 5))": ["`at`", 3, 4],
    "given(RoPE(axial(8)), at=pos)": [2, "`pos`"],
    "given(create('liere', 8, 4), at=pos)": ["LieRE", 2, "`pos`", "(5,)"],
    "create('liere', 8, 4).prepare(pos.expand(2, 5))": ["LieRE", 2, "`pos`"],
    # Tensors that are none, and dtypes
    "attend(q.numpy(), q, q, RoPE(8))": ["`q`"],
    "attend(q, q.tolist(), q, RoPE(8))": ["`k`"],
    "attend(q, q, None, RoPE(8))": ["`v`", "None"],
    "attend(q.long(), q.long(), q.long(), NoPE())": ["int64"],
    "attend(q + 0j, q + 0j, q + 0j, NoPE())": ["complex64"],
    "attend(q[0], q[0], q[0], NoPE())": ["(4, 5, 8)"],
    "attend(q, q[:, :0], q[:, :0], NoPE())": ["(2, 4, 5, 8)", "(2, 0, 5, 8)"],
    "RoPE(8)(q.numpy(), q)": ["RoPE"],
    "Sinusoidal(8)([1.0])": ["Sinusoidal", "list"],
    "ALiBi(4)(5)": ["ALiBi", 5],
    "ALiBi(4)(range(5))": ["ALiBi"],
    # Arguments in another order
    "Sinusoidal(8)(pos, x)": ["int64"],
    "RoPE(8)(pos, q, q)": ["int64"],
    "Sinusoidal(8)(torch.tensor(1.0))": ["float32"],
    "masks.window(pos, 4)": ["`size`", "(5,)"],
    'masks.padding("right", [5, 3])': ["`lengths`", "'right'"],
    "extension.ntk(4.0, theta)": ["`freqs`", "4.0"],
    "extension.yarn(2.0, theta, 2048)": ["`freqs`", "2.0"],
    "mrope((2, 1, 1), theta)": ["`dim`"],
    "SelfAttention(4, 32, NoPE())": ["`heads`", "`width`", 4],
    "create(64, 8, 'rope')": ["`name`", 64],
    # What acts on embeddings does so before attention
    "given(Sinusoidal(32))": [
        "`at = encoding.prepare(pos)`",
        "`x = encoding.on_embeddings(x, at)`",
        "`attend`",
        "`at`",
        "`SelfAttention`",
    ],
    "given(Learned(9, 32))": ["`SelfAttention`"],
    "given(Sum(Sinusoidal(32), RoPE(8)))": [
        "`at = encoding.prepare(pos)`",
        "`x = encoding.on_embeddings(x, at)`",
        "`attend`",
        "`at`",
        "`SelfAttention`",
    ],
    "given(Sinusoidal(32), at=pos)": ["`attend`", "`at`"],
    "given(Binary(32), at=pos)": [
        "`at = encoding.prepare(pos)`",
        "`x = encoding.on_embeddings(x, at)`",
        "`attend`",
        "`at`",
        "`SelfAttention`",
    ],
    "given(Sum(Integer(32), NoPE()), at=pos)": [
        "`at = encoding.prepare(pos)`",
        "`x = encoding.on_embeddings(x, at)`",
        "`attend`",
        "`at`",
        "`SelfAttention`",
    ],
    "explain(q, q, q, Sine(32))": [
        "`at = encoding.prepare(pos)`",
        "`x = encoding.on_embeddings(x, at)`",
        "`attend`",
        "`at`",
        "`SelfAttention`",
    ],
    # Numbers that are none
    "given(scale=nan)": ["`scale`", "nan"],
    "given(scale=inf)": ["`scale`", "inf"],
    'given(scale="0.125")': ["`scale`", "'0.125'"],
    "given(scale=torch.ones(4))": ["`scale`", "(4,)"],
    "RoPE(8, gain=nan)": ["`gain`", "nan"],
    'RoPE(8, gain="1")': ["`gain`", "'1'"],
    "RoPE(8, logit_gain=nan)": ["`logit_gain`", "nan"],
    "RoPE(8, logit_gain=0)": ["`logit_gain`", 0],
    'RoPE(8, trailing="yes")': ["`trailing`", "True", "False", "'yes'"],
    "RoPE(8, learned=1)": ["`learned`", "True", "False", 1],
    "RoPE(64, 10000.0)": ["`dim`", 10000],
    "RoPE(64.0)": ["`dim`", "64.0"],
    'RoPE("64")': ["`dim`", "'64'"],
    "RoPE(None)": ["`dim`", "None"],
    "RoPE(True)": ["`dim`", "True"],
    "RoPE([1.0, 0.1])": ["`dim`"],
    "RoPE(torch.ones(0))": ["`freqs`"],
    "RoPE(torch.ones(2, 2, 2))": ["`freqs`", "(2, 2, 2)"],
    "RoPE(torch.tensor(8.0))": ["`freqs`"],
    "RoPE(torch.arange(8))": ["`freqs`", "float64", "int64"],
    "RoPE(theta.bfloat16())": ["`freqs`", "float64", "bfloat16"],
    "RoPE(theta * nan)": ["`freqs`"],
    "XPos(8.0)": ["`dim`", "8.0"],
    'XPos(8, span="512")': ["`span`", "'512'"],
    "XPos(8, centre=0.5)": ["`centre`", "0.5"],
    "frequencies(8, 0)": ["`base`", 0],
    "frequencies(8, nan)": ["`base`", "nan"],
    'frequencies(8, "10000")': ["`base`", "'10000'"],
    "frequencies(8.0)": ["`dim`", "8.0"],
    'Sinusoidal(8, layout=["half"])': ["`layout`"],
    'Sinusoidal("512")': ["`width`", "'512'"],
    "SineCosine(8, theta=nan)": ["`theta`", "nan"],
    "LinearSinusoidal(7)": ["`width`", 2, 7],
    "Integer(0)": ["`width`", 1, 0],
    "Integer(-8)": ["`width`", 1, -8],
    "Normalized(8.5)": ["`width`", "8.5"],
    "Normalized(8, divisor=2)": ["`divisor`", "'N'", "'N-1'", 2],
    "Sine(None)": ["`width`", "None"],
    "Binary(0)": ["`width`", 1, 0],
    'Binary(8, bits="8")': ["`bits`", "'8'"],
    "Learned(0, 8)": ["`length`", 1, 0],
    "Learned(9, 0)": ["`width`", 1, 0],
    "Learned(9.0, 8)": ["`length`", "9.0"],
    "ALiBi(0)": ["`heads`", 1, 0],
    "ALiBi(8.0)": ["`heads`", "8.0"],
    "ALiBi(8, strength=nan)": ["`strength`", "nan"],
    "T5Bias(0)": ["`heads`", 1, 0],
    "T5Bias(4, buckets=0)": [2],
    "T5Bias(4, buckets=32.0)": ["`buckets`", "32.0"],
    "T5Bias(4, 32, 128, 'causal')": ["`bidirectional`", "True", "False", "'causal'"],
    "Kerple(0)": ["`heads`", 1, 0],
    "Kerple(4, curve=1)": ["'log'", "'power'", 1],
    "FIRE(0)": ["`heads`", 1, 0],
    "FIRE(4, length=nan)": ["`length`", "nan"],
    'FIRE(4, length="512")': ["`length`", "'512'"],
    "FIRE(4, hidden=2.5)": ["`hidden`", "2.5"],
    "Shaw(0)": ["`dim`", 1, 0],
    "Shaw(8, reach=-1)": ["`reach`", 0, -1],
    "Shaw(8, reach=2.0)": ["`reach`", "2.0"],
    "DeBERTa(8, 0)": ["`heads`", 1, 0],
    "DeBERTa(8, 4, reach=0)": ["`reach`", 1, 0],
    "DeBERTa(8, 4, clamped=0)": ["`clamped`", "True", "False", 0],
    "DeBERTa(8, 4, released=None)": ["`released`", "True", "False", "None"],
    "TransformerXL(8, 0)": ["`heads`", 1, 0],
    "TransformerXL(0, 4)": ["`dim`", 1, 0],
    "Mixed(8, 0)": ["`heads`", 1, 0],
    "Mixed(8.0, 4)": ["`dim`", "8.0"],
    "Temperature(0)": ["`every`", 1, 0],
    "Temperature(nan)": ["`every`", 1, "nan"],
    'Temperature(8, strength="0.1")': ["`strength`", "'0.1'"],
    "axial(8, axes=0)": [0, "`axes`", 8],
    "axial(8, axes=2.0)": ["`axes`", "2.0"],
    "p_rope(theta, nan)": ["`p`", 0, 1, "nan"],
    "p_rope(8.5, 0.5)": ["`dim`", "8.5"],
    "mrope(theta, 4)": ["`sections`", 4],
    "mrope(theta, (2.0, 1.0, 1.0))": ["`sections`", "2.0"],
    "dinov3.dinov3(7.0)": ["`dim`", "7.0"],
    # Sizes that differ
    "given(Sum(RoPE(8), Shaw(16)))": ["`dim`", "RoPE", 8, "Shaw", 16],
    "Sum(ALiBi(4), T5Bias(8))": ["`heads`", "ALiBi", 4, 8],
    "Sum(Sinusoidal(8), Learned(9, 16))": ["`width`", 8, "Learned"],
    "SelfAttention(32, 4, RoPE(16))": ["`encoding`", "`dim`", 16, 8],
    "SelfAttention(32, 4, ALiBi(8))": ["`encoding`", "`heads`", 8, 4],
    "SelfAttention(32, 4, Sinusoidal(64))": ["`encoding`", "`width`", 64, 32],
    "SelfAttention(32.0, 4, NoPE())": ["`width`", "32.0"],
    "SelfAttention(32, 4, NoPE(), groups=2.0)": ["`groups`", "2.0"],
    # Masks
    "given(mask=masks.causal)": ["`mask`", "`masks.causal`"],
    'given(mask="causal")': ["`mask`", "'causal'"],
    "given(mask=True)": ["`mask`", "True"],
    "given(mask=torch.ones(5, 5))": ["`mask`"],
    "masks.causal(128)": ["`pos`", 128],
    "masks.causal(k_pos=pos)": ["`k_pos`"],
    "masks.window(2.5)": ["`size`", "2.5"],
    "masks.window(0)": ["`size`", 1, 0],
    "masks.documents([0, 0, 1])": ["`ids`"],
    "masks.documents(pos.float())": ["`ids`", "float32"],
    "masks.documents(pos, pos.half())": ["`k_ids`", "float16"],
    "masks.padding(5)": ["`lengths`", 5],
    "masks.padding([])": ["`lengths`"],
    "masks.padding([5, 2.5])": ["`lengths`", "2.5"],
    'masks.padding([5, 3], side="top")': ["`side`"],
    "masks.causal() & 3": [3],
    "masks.causal() | None": ["None"],
    # Layers, and the rotation by itself
    'SelfAttention(32, 4, NoPE())("text")': ["`x`", 32],
    "SelfAttention(32, 4, NoPE())(x.numpy())": ["`x`"],
    "SelfAttention(32, 4, NoPE())(x)": [32, "(2, 5, 8)"],
    "SelfAttention(8, 2, NoPE())(x.long(), x)": ["`x`", "`pos`"],
    "SelfAttention(8, 2, RoPE(4))(x, [0, 1])": ["`pos`"],
    'rotate(q, pos, "half")': ["`rotate`", "`x`", "`by`", "`turn`"],
    'rotate(q.numpy(), turn(pos, theta), "half")': ["`rotate`", "Turn"],
    "turn(pos, 8)": ["`freqs`", 8],
    "turn(theta, pos)": ["`freqs`", "int64"],
    "ALiBi(4)(q)": ["`pos`", "(2, 4, 5, 8)"],
    "RoPE(8)(q, q, pos=[0, 1])": ["`pos`"],
    'given(implementation=["auto"])': ["`implementation`", "'auto'"],
    # Functions of positions
    "positions.sequence(2.5)": ["`length`", "2.5"],
    "positions.sequence(-1)": ["`length`", 0, -1],
    "positions.sequence(5, start=0.5)": ["`start`", "0.5"],
    "positions.packed(5)": ["`lengths`", 5],
    "positions.packed([])": ["`lengths`"],
    "positions.documents([3, -1])": ["`lengths`", 0, -1],
    "positions.padded([])": ["`lengths`"],
    "positions.padded([3], tokens=2)": ["`tokens`", 2],
    "positions.grid(2.0, 2)": ["`sizes`", "2.0"],
    "positions.grid()": ["`sizes`"],
    "positions.folded(5, 0)": ["`axes`", 1, 64, 0],
    # Extensions
    'extension.interpolate(theta, "2")': ["`factor`", "'2'"],
    "extension.interpolate(64, 2.0)": ["`freqs`", 64],
    "extension.interpolate(theta, 10**400)": ["`factor`"],
    "extension.interpolate(theta, 5e-324)": ["`factor`", "5e-324"],
    "extension.ntk(theta, None)": ["`factor`", "None"],
    "extension.yarn(theta, 2.0, nan)": ["`trained`", "nan"],
    'extension.yarn(theta, 2.0, 99, fast="32")': ["`fast`", "'32'"],
    "extension.longrope(theta, 9, 9, 2.0, [1.0] * 4)": ["`short`", "2.0"],
    "extension.longrope_gain(4.0, 1)": ["`trained`", 1],
    "extension.yarn_gain(4.0, nan)": ["`mscale`", "nan"],
    # The catalogue and the properties
    'create("rope", 8.0, 4)': ["`dim`", "8.0"],
    'create("rope", 8, 0)': ["`heads`", 1, 0],
    'create("rope", 8, 4, gain="x")': ["`gain`", "'x'"],
    "create(RoPE, 8, 4)": ["`name`", "RoPE"],
    "properties.check(NoPE(), dim=2.5)": ["`dim`", "2.5"],
    "properties.check(NoPE(), heads=-1)": ["`heads`", 1, -1],
    # What would never end, or take all memory
    "T5Bias(2, 32, 10**9)": ["`reach`", 1, "4,194,304", 1000000000],
    "T5Bias(2, 10**6, 2 * 10**6)": ["1,024", "`buckets`"],
    "Learned(10**9, 10**6)": ["(1000000000, 1000000)", "3,725,290", "GiB"],
    "Learned(10**30, 8)": [
        "(1000000000000000000000000000000, 8)",
        "29,802,322,387,695,312,500,000",
        "GiB",
        23,
        "meta",
    ],
    "ALiBi(10**9)": ["`heads`", 1, "1,048,576", 1000000000],
    "RoPE(10**30)": ["`dim`", 1, "16,777,216"],
    "Shaw(2**20, 10**9)": ["GiB"],
    "DeBERTa(2**20, 2**20)": ["GiB"],
    "TransformerXL(2**20, 2**20)": ["`dim`", 1, "16,777,216", 1099511627776],
    "Mixed(2**24, 2**20)": ["GiB"],
    "FIRE(2**20, hidden=10**12)": ["GiB"],
}


@pytest.mark.parametrize("call", CALLS)
def test_a_beginners_call_is_answered_in_a_sentence(unchecked, call):
    with pytest.raises((TypeError, ValueError, IndexError)) as told:
        eval(call, NAMES)
    message = str(told.value)
    assert re.search(stating(*CALLS[call]), message), message
    assert message.endswith(".")
    assert len(message) < 400
    assert "\n" not in message


def test_there_are_many():
    assert len(CALLS) > 200


@pytest.mark.parametrize("card", CATALOG, ids=lambda card: card.slug)
@pytest.mark.parametrize("wrong", [[0, 1, 2, 3, 4], range(5), 5, np.arange(5), "01234"], ids=repr)
def test_no_encoding_takes_positions_that_are_no_tensor(unchecked, card, wrong):
    """One rule for all: positions are tensors, so that their device and dtype are known."""
    encoding = card.make(8, 4)
    with refused(TypeError, "`pos`"):
        encoding.prepare(wrong)
    with refused(TypeError, "`at`"):
        attend(q, q, q, encoding, wrong)
