"""What cannot be meant is refused: beginners' calls, each against the sentence that it should get.

Each message names the argument, says what was given, and what to do instead; none comes from torch,
none from Python, and none of these calls gives numbers.
"""

import math
import re

import numpy as np
import pytest
import torch
from refusals import refused

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

CALLS = {  # the call, as a beginner writes it -> what it is told
    # An encoding that is none
    'attend(q, q, q, "rope")': r"`encoding` must be an encoding, .* got 'rope': .* `posenc.create`",
    "attend(q, q, q, RoPE)": "`encoding` must be an encoding, .* got the class RoPE: make one",
    "attend(q, q, q, None)": "`encoding` must be an encoding, .* got None",
    "attend(q, q, q, theta)": r"`encoding` must be .* got a tensor of shape \(4,\)",
    "attend(q, q, q, [RoPE(8)])": "`encoding` must be an encoding, .* got a list",
    "attend(RoPE(8), q, q, q)": "`q` must be a tensor .* got a RoPE",
    "attend(q, q, RoPE(8), q)": "`v` must be a tensor .* got a RoPE",
    'SelfAttention(32, 4, 3.5)': "`encoding` must be an encoding, .* or the name of one, got 3.5",
    "SelfAttention(32, 4, RoPE)": "`encoding` must be an encoding, .* got the class RoPE",
    "SelfAttention(32, RoPE(8), 4)": "`encoding` must be an encoding, .* got 4",
    "Sum([RoPE(8), ALiBi(4)])": r"`Sum` takes encodings, .* got a list: .* `Sum\(\*encodings\)`",
    "Sum(RoPE, ALiBi)": "`Sum` takes encodings, .* got the class RoPE",
    'Sum("rope", "alibi")': "`Sum` takes encodings, .* got 'rope'",
    "Sum(RoPE(8), None)": "`Sum` takes encodings, .* got None",
    'properties.check("rope")': "`encoding` must be an encoding, .* got 'rope'",
    "properties.check(RoPE)": "`encoding` must be an encoding, .* got the class RoPE",
    'explain(q, q, q, "rope")': "`encoding` must be an encoding",
    # Positions that are none
    "RoPE(8).prepare([0, 1, 2])": r"`pos` must be a tensor .* got a list: pass `torch.tensor\(…\)`",
    "ALiBi(4).prepare(range(5))": "`pos` must be a tensor of positions, got a range",
    "Sinusoidal(8).prepare(5)": "`pos` must be a tensor of positions, got 5",
    "NoPE().prepare(np.arange(5))": "`pos` must be a tensor of positions, got a ndarray",
    'Learned(9, 8).prepare("abc")': "`pos` must be a tensor of positions, got 'abc'",
    "Shaw(8).prepare(None)": "`pos` must be a tensor of positions, got None",
    "TransformerXL(8, 4).prepare((0, 1))": "`pos` must be a tensor of positions, got a tuple",
    "XPos(8).prepare([0, 1])": "`pos` must be a tensor of positions, got a list",
    "Mixed(8, 4).prepare([[0, 1]])": "`pos` must be a tensor of positions, got a list",
    "Temperature(8).prepare([1])": "`pos` must be a tensor of positions, got a list",
    "Binary(8).prepare([1])": "`pos` must be a tensor of positions, got a list",
    "Normalized(8).prepare([1])": "`pos` must be a tensor of positions, got a list",
    "Sine(8).prepare(range(3))": "`pos` must be a tensor of positions, got a range",
    "Integer(8).prepare([1])": "`pos` must be a tensor of positions, got a list",
    "RoPE(8).prepare(torch.tensor(3))": "`pos` must have an axis of tokens, got the number 3",
    "RoPE(8).prepare(pos + 0j)": "`pos` is torch.complex64, which does not hold positions",
    "RoPE(8).prepare(pos.bool())": "`pos` is a boolean mask",
    "RoPE(8).prepare(pos.half())": "`pos` is torch.float16, which cannot count past 2048",
    "RoPE(8).prepare(torch.tensor([0, nan]))": "`pos` is nan … nan, .* pass finite positions",
    "ALiBi(4).prepare(torch.tensor([0, inf]))": "`pos` is 0 … inf, .* pass finite positions",
    "Sinusoidal(8).prepare(torch.tensor([-inf, 0]))": "`pos` is -inf … 0, .* finite",
    "FIRE(4).prepare(torch.tensor([nan, 0]))": "`pos` is nan … nan, .* finite",
    "T5Bias(4).prepare(torch.tensor([2.0**24 + 2]))": r"torch.float32 tells .* within ±16,777,216",
    "XPos(8).prepare(torch.tensor([2.0**30]))": "and integers for large ones",
    "Sine(8).prepare(torch.tensor([2.0**54]).double())": "torch.float64 tells positions apart",
    "RoPE(8).prepare(torch.tensor([2**63], dtype=torch.uint64))": "`pos` has numbers past 2⁶³ − 1",
    "given(RoPE(8), at=[0, 1, 2, 3, 4])": "`at` must be positions, as a tensor, .* got a list",
    "given(ALiBi(4), at=range(5))": "`at` must be positions, as a tensor, .* got a range",
    "given(NoPE(), at=np.arange(5))": "`at` must be positions, as a tensor, .* got a ndarray",
    "given(Sum(RoPE(8), ALiBi(4)), at=[0, 1])": "`at` must be positions, .* of this Sum .* a list",
    "given(RoPE(8), at=pos, k_at=5)": "`k_at` must be positions, as a tensor, .* got 5",
    "given(ALiBi(4), at=RoPE(8).prepare(pos))": "`at` must be .* of this ALiBi .* a Turn",
    "given(RoPE(8), at=XPos(8).prepare(pos))": "`prepare` of this RoPE made of them, got a Stretch",
    "given(Sum(ALiBi(4)), at=RoPE(8).prepare(pos))": "`prepare` of this Sum made of them",
    "given(Sum(RoPE(8), NoPE()), at=(pos,))": "`prepare` of this Sum made of them, got a tuple",
    "given(ALiBi(4), at=torch.tensor([0, 1, 2, 3, nan]))": "`pos` is nan … nan",
    "given(ALiBi(4), at=pos.bfloat16())": "cannot count past 256",
    # Positions of each head
    "given(ALiBi(4), at=pos.expand(2, 8, 5))": "`pos` is for 8 heads, `q` has 4: give each head",
    "given(RoPE(8), at=pos.expand(1, 2, 4, 5))": r"must be .* where heads .* got \(1, 2, 4, 5\)",
    "given(ALiBi(4), at=pos.expand(1, 2, 4, 5))": r"must be .* where heads .* got \(1, 2, 4, 5\)",
    "given(Mixed(8, 4), at=pos.view(1, 1, 5, 1).expand(1, 3, 5, 2))": "`pos` is for 3 heads",
    "given(RoPE(8), at=pos.expand(1, 3, 5))": "positions .* are for 3 heads, `x` has 4: repeat",
    "given(NoPE(), at=pos.expand(1, 3, 5))": "`at` is for 3 heads, there are 4",
    "given(Shaw(8), at=pos.expand(2, 3, 5))": "`at` is for 3 heads, there are 4",
    "given(XPos(8), at=pos.expand(3, 4, 5))": "XPos for 5 tokens in a batch of 3, .* batch of 2",
    "given(Temperature(8), at=pos.expand(1, 3, 5))": "positions .* are for 3 heads, `x` has 4",
    "given(Sum(RoPE(8), ALiBi(4)), at=pos.expand(1, 3, 5))": "`at` is for 3 heads, there are 4",
    "given(TransformerXL(8, 4), at=pos.expand(2, 3, 5))": "`at` is for 3 heads, there are 4",
    "given(RoPE(axial(8)), at=pos)": r"these frequencies have 2 axes: `pos` must be points",
    "given(create('liere', 8, 4), at=pos)": r"this LieRE has 2 axes: `pos` must .* shape \(5,\)",
    "create('liere', 8, 4).prepare(pos.expand(2, 5))": "this LieRE has 2 axes: `pos` must be",
    # Tensors that are none, and dtypes
    "attend(q.numpy(), q, q, RoPE(8))": "`q` must be a tensor .* got a ndarray",
    "attend(q, q.tolist(), q, RoPE(8))": "`k` must be a tensor .* got a list",
    "attend(q, q, None, RoPE(8))": "`v` must be a tensor .* got None",
    "attend(q.long(), q.long(), q.long(), NoPE())": "real floating-point numbers, got torch.int64",
    "attend(q + 0j, q + 0j, q + 0j, NoPE())": "real floating-point numbers, got torch.complex64",
    "attend(q[0], q[0], q[0], NoPE())": r"attention takes \(batch, head, token, channel\)",
    "attend(q, q[:, :0], q[:, :0], NoPE())": "heads of q must be a multiple of those of k",
    "RoPE(8)(q.numpy(), q)": "RoPE is called with tensors, got a ndarray",
    "Sinusoidal(8)([1.0])": "Sinusoidal is called with tensors, got a list",
    "ALiBi(4)(5)": "ALiBi is called with tensors, got 5",
    "ALiBi(4)(range(5))": "ALiBi is called with tensors, got a range",
    # Arguments in another order
    "Sinusoidal(8)(pos, x)": r"called with \(x, pos\), in this order, .* got torch.int64 of shape",
    "RoPE(8)(pos, q, q)": r"called with \(q, k, pos\), in this order, .* got torch.int64",
    "Sinusoidal(8)(torch.tensor(1.0))": r"called with \(x, pos\), in this order",
    "masks.window(pos, 4)": r"`size` must be a whole number, got a tensor of shape \(5,\)",
    "masks.padding(\"right\", [5, 3])": "`lengths` must be a list of whole numbers, got 'right'",
    "extension.ntk(4.0, theta)": "`freqs` must be a tensor of frequencies, got 4.0",
    "extension.yarn(2.0, theta, 2048)": "`freqs` must be a tensor of frequencies, got 2.0",
    "mrope((2, 1, 1), theta)": "`dim` must be a whole number, got a tuple",
    "SelfAttention(4, 32, NoPE())": "`heads` must divide `width`=4",
    "create(64, 8, 'rope')": "`name` must be that of an encoding, .* got 64",
    # What acts on embeddings does so before attention
    "given(Sinusoidal(32))": "Sinusoidal acts on embeddings, before .* `x = encoding.on_embeddings",
    "given(Learned(9, 32))": "Learned acts on embeddings, before .* or use `SelfAttention`",
    "given(Sum(Sinusoidal(32), RoPE(8)))": "Sum acts on embeddings, before q, k and v",
    "given(Sinusoidal(32), at=pos)": "acts on embeddings, .* and give `attend` that `at`",
    "given(Binary(32), at=pos)": "Binary acts on embeddings",
    "given(Sum(Integer(32), NoPE()), at=pos)": "Sum acts on embeddings",
    "explain(q, q, q, Sine(32))": "Sine acts on embeddings",
    # Numbers that are none
    "given(scale=nan)": "`scale` must be a finite number, got nan",
    "given(scale=inf)": "`scale` must be a finite number, got inf",
    'given(scale="0.125")': "`scale` must be a number, got '0.125': pass a float",
    "given(scale=torch.ones(4))": r"`scale` must be a number, got a tensor of shape \(4,\)",
    "RoPE(8, gain=nan)": "`gain` must be a finite number, got nan",
    'RoPE(8, gain="1")': "`gain` must be a number, got '1'",
    "RoPE(8, logit_gain=nan)": "`logit_gain` must be a positive number, got nan",
    "RoPE(8, logit_gain=0)": "`logit_gain` must be a positive number, got 0",
    'RoPE(8, trailing="yes")': "`trailing` must be True or False, got 'yes'",
    "RoPE(8, learned=1)": "`learned` must be True or False, got 1",
    "RoPE(64, 10000.0)": r"`dim` must be the channels of a head, .* base=10000\)`",
    "RoPE(64.0)": "`dim` must be a whole number, got 64.0",
    'RoPE("64")': "`dim` must be a whole number, got '64'",
    "RoPE(None)": "`dim` must be a whole number, got None",
    "RoPE(True)": "`dim` must be a whole number, got True",
    "RoPE([1.0, 0.1])": "`dim` must be a whole number, got a list",
    "RoPE(torch.ones(0))": "`freqs` must be a vector .* and not empty, got shape",
    "RoPE(torch.ones(2, 2, 2))": r"`freqs` must be a vector .* got shape \(2, 2, 2\)",
    "RoPE(torch.tensor(8.0))": r"`freqs` must be a vector .* got shape \(\)",
    "RoPE(torch.arange(8))": "`freqs` must be float64, .* got torch.int64",
    "RoPE(theta.bfloat16())": "`freqs` must be float64, .* got torch.bfloat16",
    "RoPE(theta * nan)": "`freqs` must be finite numbers",
    "XPos(8.0)": "`dim` must be a whole number, got 8.0",
    'XPos(8, span="512")': "`span` must be a number, got '512'",
    "XPos(8, centre=0.5)": "`centre` must be a whole number, got 0.5",
    "frequencies(8, 0)": "`base` must be a positive number, got 0",
    "frequencies(8, nan)": "`base` must be a positive number, got nan",
    'frequencies(8, "10000")': "`base` must be a number, got '10000'",
    "frequencies(8.0)": "`dim` must be a whole number, got 8.0",
    'Sinusoidal(8, layout=["half"])': "`layout` is where the channels of a pair sit: .* a list",
    'Sinusoidal("512")': "`width` must be a whole number, got '512'",
    "SineCosine(8, theta=nan)": "`theta` must be a finite number, got nan",
    "LinearSinusoidal(7)": "`width` must be even and at least 2, got 7",
    "Integer(0)": "`width` must be a whole number from 1 .* got 0",
    "Integer(-8)": "`width` must be a whole number from 1 .* got -8",
    "Normalized(8.5)": "`width` must be a whole number, got 8.5",
    'Normalized(8, divisor=2)': "`divisor` must be 'N' or 'N-1', got 2",
    "Sine(None)": "`width` must be a whole number, got None",
    "Binary(0)": "`width` must be a whole number from 1 .* got 0",
    'Binary(8, bits="8")': "`bits` must be a whole number, got '8'",
    "Learned(0, 8)": "`length` must be at least 1, got 0",
    "Learned(9, 0)": "`width` must be a whole number from 1 .* got 0",
    "Learned(9.0, 8)": "`length` must be a whole number, got 9.0",
    "ALiBi(0)": "`heads` must be at least 1, got 0",
    "ALiBi(8.0)": "`heads` must be a whole number, got 8.0",
    "ALiBi(8, strength=nan)": "`strength` must be a finite number, got nan",
    "T5Bias(0)": "`heads` must be a whole number from 1 .* got 0",
    "T5Bias(4, buckets=0)": "at least 2 buckets on a side",
    "T5Bias(4, buckets=32.0)": "`buckets` must be a whole number, got 32.0",
    "T5Bias(4, 32, 128, 'causal')": "`bidirectional` must be True or False, got 'causal'",
    "Kerple(0)": "`heads` must be a whole number from 1 .* got 0",
    "Kerple(4, curve=1)": "'log' or 'power', got 1",
    "FIRE(0)": "`heads` must be a whole number from 1 .* got 0",
    "FIRE(4, length=nan)": "`length` must be a finite number, got nan",
    'FIRE(4, length="512")': "`length` must be a number, got '512'",
    "FIRE(4, hidden=2.5)": "`hidden` must be a whole number, got 2.5",
    "Shaw(0)": "`dim` must be a whole number from 1 .* got 0",
    "Shaw(8, reach=-1)": "`reach` must be a whole number of at least 0, got -1",
    "Shaw(8, reach=2.0)": "`reach` must be a whole number, got 2.0",
    "DeBERTa(8, 0)": "`heads` must be a whole number from 1 .* got 0",
    "DeBERTa(8, 4, reach=0)": "`reach` must be a whole number of at least 1, got 0",
    "DeBERTa(8, 4, clamped=0)": "`clamped` must be True or False, got 0",
    "DeBERTa(8, 4, released=None)": "`released` must be True or False, got None",
    "TransformerXL(8, 0)": "`heads` must be a whole number from 1 .* got 0",
    "TransformerXL(0, 4)": "`dim` must be a whole number from 1 .* got 0",
    "Mixed(8, 0)": "`heads` must be a whole number from 1 .* got 0",
    "Mixed(8.0, 4)": "`dim` must be a whole number, got 8.0",
    "Temperature(0)": "`every` is the tokens of a step, at least 1, got 0",
    "Temperature(nan)": "`every` is the tokens of a step, at least 1, got nan",
    'Temperature(8, strength="0.1")': "`strength` must be a number, got '0.1'",
    "axial(8, axes=0)": "at least 0 for `axes`=0, got 8",
    "axial(8, axes=2.0)": "`axes` must be a whole number, got 2.0",
    "p_rope(theta, nan)": "`p` is the share of pairs that turn, 0 … 1, got nan",
    "p_rope(8.5, 0.5)": "`dim` must be a whole number, got 8.5",
    "mrope(theta, 4)": "`sections` must be a list of pairs for each axis, got 4",
    "mrope(theta, (2.0, 1.0, 1.0))": "`sections` must be a whole number, got 2.0",
    "dinov3.dinov3(7.0)": "`dim` must be a whole number, got 7.0",
    # Sizes that differ
    "given(Sum(RoPE(8), Shaw(16)))": "the `dim` of its parts differ: RoPE 8, Shaw 16",
    "Sum(ALiBi(4), T5Bias(8))": "the `heads` of its parts differ: ALiBi 4, T5Bias 8",
    "Sum(Sinusoidal(8), Learned(9, 16))": "the `width` of its parts differ: Sinusoidal 8, Learned",
    "SelfAttention(32, 4, RoPE(16))": "`encoding` was made for `dim`=16, this layer has 8",
    "SelfAttention(32, 4, ALiBi(8))": "`encoding` was made for `heads`=8, this layer has 4",
    "SelfAttention(32, 4, Sinusoidal(64))": "`encoding` was made for `width`=64, this layer has 32",
    "SelfAttention(32.0, 4, NoPE())": "`width` must be a whole number, got 32.0",
    "SelfAttention(32, 4, NoPE(), groups=2.0)": "`groups` must be a whole number, got 2.0",
    # Masks
    "given(mask=masks.causal)": "`mask` is what `masks.causal` returns, got the function: call it",
    'given(mask="causal")': "`mask` is a function of indices, .* got 'causal'",
    "given(mask=True)": "`mask` is a function of indices, .* got True",
    "given(mask=torch.ones(5, 5))": "`mask` is a function of indices, .* got a tensor",
    "masks.causal(128)": "`pos` must be a tensor of positions, got 128",
    "masks.causal(k_pos=pos)": "`k_pos` says where keys stand, .* pass both",
    "masks.window(2.5)": "`size` must be a whole number, got 2.5",
    "masks.window(0)": "`size` must be at least 1, got 0",
    "masks.documents([0, 0, 1])": "`ids` must be a tensor of whole numbers, .* got a list",
    "masks.documents(pos.float())": "`ids` must be .* whole numbers, .* of torch.float32: ",
    "masks.documents(pos, pos.half())": "`k_ids` must be .* whole numbers, .* of torch.float16",
    "masks.padding(5)": "`lengths` must be a list of whole numbers, got 5",
    "masks.padding([])": "`lengths` must be a number for each text, and not empty",
    "masks.padding([5, 2.5])": "`lengths` must be a whole number, got 2.5",
    'masks.padding([5, 3], side="top")': "`side` is where the filling goes",
    "masks.causal() & 3": "what a mask is joined with is a function of indices, .* got 3",
    "masks.causal() | None": "what a mask is joined with is a function of indices, .* None",
    # Layers, and the rotation by itself
    'SelfAttention(32, 4, NoPE())("text")': r"`x` must be embeddings \(batch, token, 32\), got 'te",
    "SelfAttention(32, 4, NoPE())(x.numpy())": r"`x` must be embeddings .* got a ndarray",
    "SelfAttention(32, 4, NoPE())(x)": r"embeddings \(batch, token, 32\), got \(2, 5, 8\)",
    "SelfAttention(8, 2, NoPE())(x.long(), x)": "`x` must be embeddings, .* `pos` is second",
    "SelfAttention(8, 2, RoPE(4))(x, [0, 1])": "`pos` must be a tensor of positions, got a list",
    'rotate(q, pos, "half")': "`rotate` takes `x`, a tensor, and `by`, what `turn` returns, got",
    'rotate(q.numpy(), turn(pos, theta), "half")': "`rotate` takes .* got a ndarray and a Turn",
    "turn(pos, 8)": "`freqs` must be a tensor of frequencies, real numbers, got 8",
    "turn(theta, pos)": "`freqs` must be a tensor of frequencies, real numbers, got torch.int64",
    "ALiBi(4)(q)": r"`pos` must be \(token,\), \(batch, token\), .* got \(2, 4, 5, 8\)",
    "RoPE(8)(q, q, pos=[0, 1])": "`pos` must be a tensor of positions, got a list",
    'given(implementation=["auto"])': "`implementation` must be a name, such as 'auto', got a list",
    # Functions of positions
    "positions.sequence(2.5)": "`length` must be a whole number, got 2.5",
    "positions.sequence(-1)": "`length` must be a whole number of at least 0, got -1",
    "positions.sequence(5, start=0.5)": "`start` must be a whole number, got 0.5",
    "positions.packed(5)": "`lengths` must be a list of whole numbers, got 5",
    "positions.packed([])": "`lengths` must be a number for each text, and not empty",
    "positions.documents([3, -1])": "`lengths` must be a whole number of at least 0, got -1",
    "positions.padded([])": "`lengths` must be a number for each text, and not empty",
    "positions.padded([3], tokens=2)": "does not fit into `tokens`=2",
    "positions.grid(2.0, 2)": "`sizes` must be a whole number, got 2.0",
    "positions.grid()": "`sizes` must be a number for each axis, and not empty",
    "positions.folded(5, 0)": "`axes` must be a whole number from 1 to 64, got 0",
    # Extensions
    'extension.interpolate(theta, "2")': "`factor` must be a number, got '2'",
    "extension.interpolate(64, 2.0)": "`freqs` must be a tensor of frequencies, got 64",
    "extension.interpolate(theta, 10**400)": "`factor` must be a positive number, got a huge int",
    "extension.interpolate(theta, 5e-324)": "`factor` must leave θ finite, got 5e-324",
    "extension.ntk(theta, None)": "`factor` must be a number, got None",
    "extension.yarn(theta, 2.0, nan)": "`trained` must be a positive number, got nan",
    'extension.yarn(theta, 2.0, 99, fast="32")': "`fast` must be a number, got '32'",
    "extension.longrope(theta, 9, 9, 2.0, [1.0] * 4)": "`short` must be a list of factors, .* 2.0",
    "extension.longrope_gain(4.0, 1)": "`trained` must be a length of more than 1 token, got 1",
    "extension.yarn_gain(4.0, nan)": "`mscale` must be a finite number, got nan",
    # The catalogue and the properties
    'create("rope", 8.0, 4)': "`dim` must be a whole number, got 8.0",
    'create("rope", 8, 0)': "`heads` must be a whole number from 1 .* got 0",
    'create("rope", 8, 4, gain="x")': "`gain` must be a number, got 'x'",
    "create(RoPE, 8, 4)": "`name` must be that of an encoding, .* got the class RoPE",
    "properties.check(NoPE(), dim=2.5)": "`dim` must be a whole number, got 2.5",
    "properties.check(NoPE(), heads=-1)": "`heads` must be a whole number from 1 .* got -1",
    # What would never end, or take all memory
    "T5Bias(2, 32, 10**9)": "`reach` must be a whole number from 1 to 4,194,304, got 1000000000",
    "T5Bias(2, 10**6, 2 * 10**6)": "T5 takes up to 1,024 `buckets`",
    "Learned(10**9, 10**6)": r"a table of shape \(1000000000, 1000000\) would take 3,725,290 GiB",
    "Learned(10**30, 8)": "a table .* would take .* make it smaller",
    "ALiBi(10**9)": "`heads` must be a whole number from 1 to 1,048,576, got 1000000000",
    "RoPE(10**30)": "`dim` must be a whole number from 1 to 16,777,216",
    "Shaw(2**20, 10**9)": "a table .* would take .* GiB",
    "DeBERTa(2**20, 2**20)": "would take .* GiB",
    "TransformerXL(2**20, 2**20)": "`width` must be|`dim` must be|would take .* GiB",
    "Mixed(2**24, 2**20)": "would take .* GiB",
    "FIRE(2**20, hidden=10**12)": "would take .* GiB",
}  # fmt: skip


@pytest.mark.parametrize("call", CALLS)
def test_a_beginners_call_is_answered_in_a_sentence(unchecked, call):
    with pytest.raises((TypeError, ValueError, IndexError)) as told:
        eval(call, NAMES)
    message = str(told.value)
    assert re.search(CALLS[call], message), message
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
    says = r"`at` must be positions, as a tensor,|acts on embeddings|reads the input of the layer"
    with pytest.raises(TypeError, match=says):
        attend(q, q, q, encoding, wrong)
