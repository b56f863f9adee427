"""Calls in any order that share an encoding, positions and masks, against fresh copies of them.

The result of a call depends on its arguments alone. Between calls, these tests write to weights,
positions and masks in every way that Python and torch allow (helpers/writes.py). They compare each
call with the definition, computed once from copies in memory of their own.
"""

import copy
from dataclasses import dataclass, fields
from itertools import product
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule
from thorough import THOROUGH, some
from torch import nn
from torch.nn.utils import parametrize
from torch.utils._pytree import tree_leaves, tree_map
from writes import (
    REPLACE,
    SMALL,
    TENSOR_WRITES,
    WAYS,
    attributes,
    changed_copy,
    moved,
    write_tensor,
)

from posenc import (
    CATALOG,
    FIRE,
    ALiBi,
    Cache,
    DeBERTa,
    Kerple,
    NoPE,
    RoPE,
    SelfAttention,
    Shaw,
    Sum,
    SwinV2,
    T5Bias,
    TransformerXL,
    XPos,
    attend,
    masks,
)
from posenc.core.positions import folded
from posenc.encodings.temperature import Temperature

DIM, HEADS, WIDTH, KEYS = 8, 4, 32, 9
ENCODINGS = {card.name: lambda card=card: card.make(DIM, HEADS) for card in CATALOG} | {
    "DeBERTa": lambda: DeBERTa(DIM, HEADS, reach=4),
    "DeBERTa as released": lambda: DeBERTa(DIM, HEADS, reach=30, released=True),
    "Shaw": lambda: Shaw(DIM, reach=3),
    "Shaw of many rows": lambda: Shaw(DIM, reach=512),
    "FIRE of short texts": lambda: FIRE(HEADS, 6.0),
    "KERPLE with powers": lambda: Kerple(HEADS, "power"),
    # Random positive weights of many units would saturate its sigmoid
    "Swin v2": lambda: SwinV2(HEADS, hidden=4),
    "RoPE in halves": lambda: RoPE(DIM, layout="half"),
    "RoPE that learns": lambda: RoPE(DIM, learned=True),
    "RoPE and ALiBi": lambda: Sum(RoPE(DIM), ALiBi(HEADS)),
    "ALiBi and T5": lambda: Sum(ALiBi(HEADS), T5Bias(HEADS)),
    "ALiBi and FIRE": lambda: Sum(ALiBi(HEADS), FIRE(HEADS, 6.0)),
    "T5 and Shaw": lambda: Sum(T5Bias(HEADS), Shaw(DIM)),
    "xPos and Transformer-XL": lambda: Sum(XPos(DIM), TransformerXL(DIM, HEADS)),
    "sums within sums": lambda: Sum(ALiBi(HEADS), Sum(Kerple(HEADS), Temperature(HEADS))),
}
LEARNED = [name for name, make in ENCODINGS.items() if any(True for _ in make().parameters())]
CONSTANT = [name for name, make in ENCODINGS.items() if attributes(make())]
MODES = {"no_grad": torch.no_grad, "inference": torch.inference_mode, "grad": torch.enable_grad}
CLOSE = {torch.float32: 2e-4, torch.float64: 2e-5, torch.bfloat16: 5e-2}  # FIRE's logs are float32


def of_positions(name):
    """Test whether `attend` computes all of an encoding: no hook acts on embeddings or on x."""
    return not {"on_embeddings", "on_hidden"} & {*ENCODINGS[name]().acts_on}


def goes_by_scores(encoding):
    """Test whether cached keys are independent of the encoding's weights."""
    return {*encoding.acts_on} <= {"on_scores", "by_weight"}


def made(name):
    """An encoding with weights that matter."""
    encoding = ENCODINGS[name]()
    for x in encoding.parameters():
        x.data.copy_(moved(x))
    return encoding


def cloned(at):
    """A `Prepared`, or positions, in memory of its own."""
    return tree_map(lambda x: x.detach().clone(), at)


class Attending(nn.Module):
    """A holder of an encoding, and a module, so that torch can call it with other weights."""

    def __init__(self, encoding):
        super().__init__()
        self.encoding = encoding

    def forward(self, q, k, v, *given, **how):
        return attend(q, k, v, self.encoding, *given, **how)


def close(ours, expected, within=CLOSE[torch.float32], says=""):
    torch.testing.assert_close(
        ours, expected, rtol=within, atol=within, msg=lambda text: f"{says}: {text}"
    )


# One write, one encoding, every path --------------------------------------------------------------


@dataclass
class Text:
    """Queries, keys, values, and where they stand: bare, and prepared."""

    q: Any
    k: Any
    v: Any
    pos: Any
    at: Any
    last: Any
    last_at: Any

    @classmethod
    def of(cls, encoding):
        q, k, v = (torch.randn(2, n, KEYS, DIM) for n in (HEADS, 2, 2))
        pos = folded(KEYS, encoding.axes)
        last = pos[-1:].clone()
        return cls(q, k, v, pos, encoding.prepare(pos), last, encoding.prepare(last))

    def fresh(self):
        return Text(*[cloned(getattr(self, field.name)) for field in fields(self)])


PATHS = {
    "no positions": lambda e, t, **how: attend(t.q, t.k, t.v, e, **how),
    "no positions, causal": lambda e, t, **how: attend(
        t.q, t.k, t.v, e, mask=masks.causal(), **how
    ),
    "bare positions": lambda e, t, **how: attend(t.q, t.k, t.v, e, t.pos, **how),
    "prepared": lambda e, t, **how: attend(t.q, t.k, t.v, e, t.at, mask=masks.causal(), **how),
    "one query, bare": lambda e, t, **how: attend(
        t.q[:, :, -1:], t.k, t.v, e, t.last, t.pos, **how
    ),
    "one query, prepared": lambda e, t, **how: attend(
        t.q[:, :, -1:], t.k, t.v, e, t.last_at, t.at, **how
    ),
}


def answers(encoding, text, **how):
    """Return the output of each path; points are always passed."""
    paths = [path for path in PATHS if encoding.axes == 1 or "no positions" not in path]
    return {path: PATHS[path](encoding, text, **how) for path in paths}


def check_paths(holder, write, must_differ=True):
    """Three calls on each path, the write, and a call on each against fresh copies."""
    text = Text.of(holder.encoding)
    before = [answers(holder.encoding, text) for _ in range(3)][-1]
    write()
    ours = answers(holder.encoding, text)
    expected = answers(copy.deepcopy(holder.encoding), text.fresh(), implementation="reference")
    for path, out in ours.items():
        close(out, expected[path], says=path)
        # A rotation prepared from learned frequencies keeps its old angles.
        differs = must_differ and not ("prepared" in path and is_rotary(holder.encoding))
        assert not differs or not out.allclose(before[path], atol=1e-5), path


def is_rotary(encoding):
    return "on_queries" in encoding.acts_on


ALONE = [name for name in ENCODINGS if of_positions(name)]
LEARNED_ALONE = [name for name in ALONE if name in LEARNED]


@pytest.mark.parametrize(("way", "name"), some(product(WAYS, LEARNED_ALONE), 4))
def test_attend_reads_the_weights_as_they_are_now(name, way):
    for frozen, mode in product((False, True), some(MODES, 3)):
        holder = Attending(made(name).requires_grad_(not frozen))
        with MODES[mode]():
            steps = WAYS[way](holder)
            next(steps)
            check_paths(holder, lambda steps=steps: next(steps, None), way not in SMALL)


@pytest.mark.parametrize("how", [*TENSOR_WRITES, "another"])
@pytest.mark.parametrize("name", [name for name in ALONE if name in CONSTANT])
@torch.no_grad()
def test_attend_reads_tensors_that_are_attributes_as_they_are_now(name, how):
    """The caller must call `prepare` again for values prepared from these tensors."""
    encoding = made(name)
    text = Text.of(encoding)
    for _ in range(3):
        answers(encoding, text)
    for part, attribute, x in attributes(encoding):
        if how == "another":
            setattr(part, attribute, 1.5 * x)
        else:
            write_tensor(x, how, 3)
    text.at, text.last_at = encoding.prepare(text.pos), encoding.prepare(text.last)
    expected = answers(copy.deepcopy(encoding), text.fresh(), implementation="reference")
    for path, out in answers(encoding, text).items():
        close(out, expected[path], says=path)


@pytest.mark.parametrize("name", LEARNED_ALONE)
@torch.no_grad()
def test_a_functional_call_reads_the_weights_that_it_is_given(name):
    holder = Attending(made(name))
    text = Text.of(holder.encoding)
    q, k, v, pos = text.q, text.k, text.v, text.pos
    other = changed_copy(holder)
    weights = dict(other.named_parameters())
    own = attend(q, k, v, copy.deepcopy(holder.encoding), pos.clone(), implementation="reference")
    theirs = attend(q, k, v, other.encoding, pos.clone(), implementation="reference")
    assert not own.allclose(theirs, atol=1e-3)
    for _ in range(3):
        close(holder(q, k, v, pos), own)
        close(torch.func.functional_call(holder, weights, (q, k, v, pos)), theirs)


@torch.no_grad()
@pytest.mark.parametrize("make", [T5Bias, Kerple, FIRE, lambda heads: DeBERTa(16, heads)])
def test_a_teacher_that_follows_its_student_by_moving_averages_says_what_its_weights_say(make):
    """Thirty steps of README's simplest call, as in BYOL and DINO, against a fresh copy."""
    student = make(4)
    teacher = copy.deepcopy(student).requires_grad_(False)
    q = torch.randn(1, 4, 12, 16)
    for _ in range(30):
        for t, s in zip(teacher.parameters(), student.parameters(), strict=True):
            s.data.add_(0.2 * torch.randn_like(s))
            t.data.mul_(0.9).add_(s.data, alpha=0.1)
        expected = attend(q, q, q, copy.deepcopy(teacher), implementation="reference")
        close(attend(q, q, q, teacher), expected)


@pytest.mark.parametrize(
    "encoding", [DeBERTa(8, 1, reach=4), TransformerXL(8, 1)], ids=lambda e: type(e).__name__
)
@torch.no_grad()
def test_a_square_weight_that_was_transposed_counts_as_another(encoding):
    """A transposed weight keeps its address and its bytes."""
    encoding = copy.deepcopy(encoding)
    q, pos = torch.randn(1, 1, KEYS, 8), torch.arange(KEYS)
    last, k_at = encoding.prepare(pos[-1:].clone()), encoding.prepare(pos)
    call = lambda e, **how: attend(q[:, :, -1:], q, q, e, last, k_at, **how)  # noqa: E731
    for x in encoding.parameters():
        x.data.normal_()
    before = [call(encoding) for _ in range(3)][-1]
    for x in encoding.parameters():
        if x.shape[-1] == x.shape[-2]:
            x.data = x.data.mT
    after = call(encoding)
    close(after, call(copy.deepcopy(encoding), implementation="reference"))
    assert not after.allclose(before, atol=1e-3)


# Layers -----------------------------------------------------------------------


@pytest.mark.parametrize(("way", "name"), some(product(WAYS, LEARNED), 7))
def test_a_layer_reads_the_weights_as_they_are_now(name, way):
    """Test a whole text, and a token that follows those in a cache."""
    for frozen, mode in product((False, True), some(MODES, 3)):
        with MODES[mode]():
            layer = SelfAttention(WIDTH, HEADS, made(name).requires_grad_(not frozen), groups=2)
            steps = WAYS[way](layer)
            next(steps)
            x, pos, cache = torch.randn(2, KEYS, WIDTH), folded(KEYS, layer.encoding.axes), Cache()
            for one, at in zip(x[:, :-1].split(2, 1), pos[:-1].split(2), strict=True):
                layer(x, pos, masks.causal())
                layer(one, at, masks.causal(), cache=cache)
            next(steps, None)
            alone, branch = copy.deepcopy((layer, cache))
            whole = alone(x, pos.clone(), masks.causal(), "reference")
            close(layer(x, pos, masks.causal()), whole)
            token = layer(x[:, -1:], pos[-1:], masks.causal(), cache=cache)
            branched = alone(x[:, -1:], pos[-1:].clone(), masks.causal(), cache=branch)
            close(token, branched, says="a copy of layer and cache")
            if goes_by_scores(layer.encoding):
                close(token, whole[:, -1:], says="the whole text")


KEPT = [way for way in WAYS if way not in REPLACE]
# Positions and masks -----------------------------------------------------------------------------


def memory(pos, kind):
    """Positions in memory of their own, and a function that adds to them."""
    if kind == "numpy":
        numbers = pos.numpy().copy()
        return torch.from_numpy(numbers), lambda by: np.add(numbers, by, out=numbers)
    if kind == "inference":
        with torch.inference_mode():
            held = pos.clone()
        return held, lambda by: write_tensor(held, "in place", by)
    held = pos.clone()
    if kind == "buffer":
        return held, lambda by: held.copy_(held + by)
    return held, lambda by: write_tensor(held, kind, by)


KINDS = "numpy", "inference", "buffer", "in place", "data"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ALONE)
@torch.no_grad()
def test_bare_positions_are_where_they_stand_now(name, kind):
    """One query and many, with a mask made of the same positions; keys are moved past queries."""
    encoding = made(name)
    for queries in (1, 5):
        pos, move = memory(folded(5, encoding.axes)[-queries:], kind)
        k_pos, move_keys = memory(folded(5, encoding.axes), kind)
        q, k, v = (torch.randn(2, n, m, DIM) for n, m in ((HEADS, queries), (2, 5), (2, 5)))
        held = [None] if encoding.axes > 1 else [None, masks.window(4, pos, k_pos)]
        for by in (3, -5, 7):
            for mask in held:
                outs = [attend(q, k, v, encoding, pos, k_pos, mask) for _ in range(3)]
                alone = copy.deepcopy(encoding), pos.clone(), k_pos.clone(), copy.deepcopy(mask)
                close(outs[-1], attend(q, k, v, *alone, implementation="reference"))
            (move if by > 0 else move_keys)(abs(by))


SUMS = [name for name in ALONE if isinstance(ENCODINGS[name](), Sum)]
PREPARED = [("no_grad", "numpy", name) for name in SUMS]
PREPARED += some(product(MODES, TENSOR_WRITES, [name for name in ALONE if name not in SUMS]), 5)


@pytest.mark.parametrize(("made_in", "how", "name"), PREPARED)
def test_what_was_prepared_is_taken_as_it_is_now(name, made_in, how):
    """Each of its tensors in turn: tables of a rotation, positions of each part of a sum."""
    encoding = made(name).requires_grad_(False)
    # With more tokens a bias is computed along a band of pairs.
    tokens = 40 if name in SUMS else KEYS
    pos = folded(tokens, encoding.axes)
    with MODES[made_in]():
        last, at, k_at = map(encoding.prepare, (pos[-1:].clone(), pos, pos))
    q, k, v = (torch.randn(2, n, tokens, DIM) for n in (HEADS, 2, 2))
    with MODES["inference" if made_in == "inference" else "no_grad"]():
        for x in (None, *tree_leaves((last, at, k_at))):
            if x is not None:
                write_tensor(x, how, 3)
            for _ in range(3):
                outs = [
                    attend(q, k, v, encoding, at, k_at),
                    attend(q[:, :, -1:], k, v, encoding, last, k_at),
                ]
            alone, fresh = copy.deepcopy(encoding), [*map(cloned, (last, at, k_at))]
            by = {"implementation": "reference"}
            close(outs[0], attend(q, k, v, alone, *fresh[1:], **by))
            close(outs[1], attend(q[:, :, -1:], k, v, alone, fresh[0], fresh[2], **by))


@torch.no_grad()
def test_layers_that_share_positions_add_every_part_of_a_sum_beyond_the_length_of_one():
    encoding = Sum(ALiBi(4), FIRE(4))
    at, k_at = encoding.prepare(torch.tensor([600])), encoding.prepare(torch.arange(601))
    for _ in range(4):
        q, (k, v) = torch.randn(1, 4, 1, DIM), torch.randn(2, 1, 4, 601, DIM)
        out = attend(q, k, v, encoding, at, k_at)
        close(out, attend(q, k, v, encoding, at, k_at, implementation="reference"))


# Any of it, in any order -------------------------------------------------------------------------


def run_as(machine, examples, steps):
    """The machine as a test: alike in each quick run, anew in each thorough one."""
    machine.TestCase.settings = settings(
        max_examples=examples * (40 if THOROUGH else 1),
        stateful_step_count=steps,
        derandomize=not THOROUGH,
        database=None,
        deadline=None,
        suppress_health_check=[*HealthCheck],
    )
    return machine.TestCase


def is_parametrized(encoding):
    return any(isinstance(part, parametrize.ParametrizationList) for part in encoding.modules())


class Writes(RuleBasedStateMachine):
    """Writes to the weights of `self.encoding`, between calls alike."""

    encoding: Any

    def use(self):
        """A call as the last, against fresh copies."""
        raise NotImplementedError

    def wrote(self):
        pass

    @rule(way=st.sampled_from(KEPT), times=st.integers(0, 3))
    def write_weights(self, way, times):
        if not any(True for _ in self.encoding.parameters()):
            way = "a number"
        if is_parametrized(self.encoding) and way in ("parametrized", "weight_norm"):
            return
        steps = WAYS[way](self)
        with torch.no_grad():
            next(steps)
        for _ in range(times):
            self.use()
        with torch.no_grad():
            next(steps, None)
        self.wrote()
        self.use()

    @rule(frozen=st.booleans())
    def freeze(self, frozen):
        self.encoding.requires_grad_(not frozen)


@st.composite
def places(draw):
    """Draw positions of a few queries and keys: at steps of 1 or 2, out of order, or per text."""
    queries = draw(st.sampled_from([1, 1, 1, 3, 20]))
    keys = queries + draw(st.sampled_from([0, 0, 1, 8, 40]))
    k_pos = draw(st.sampled_from([0, 0, 5, 1000])) + torch.arange(keys) * draw(
        st.sampled_from([1, 1, 2])
    )
    if draw(st.integers(0, 7)) == 0:
        k_pos = k_pos.flip(0)
    return k_pos[keys - queries :].clone(), k_pos


class Calls(Writes):
    """Calls of `attend` on positions that are held, bare and prepared, and on none."""

    @initialize(
        name=st.sampled_from(ALONE),
        stand=places(),
        kind=st.sampled_from(KINDS),
        made_in=st.sampled_from([*MODES]),
        frozen=st.booleans(),
        seed=st.integers(0, 2**16),
    )
    def begin(self, name, stand, kind, made_in, frozen, seed):
        torch.manual_seed(seed)
        self.encoding = made(name).requires_grad_(not frozen)
        if self.encoding.axes > 1:
            stand = [torch.stack([pos] * self.encoding.axes, -1) for pos in stand]
        (self.pos, self.move), (self.k_pos, self.move_keys) = (memory(pos, kind) for pos in stand)
        self.sizes = [len(pos) for pos in stand]
        self.masks = [None]
        if self.encoding.axes == 1:
            self.masks += [
                masks.causal(self.pos, self.k_pos),
                masks.window(9, self.pos, self.k_pos),
            ]
        self.name, self.made_in = name, made_in
        self.prepare()
        self.call_as(torch.no_grad, torch.float32, HEADS, "prepared", 0)

    @rule()
    def prepare(self):
        with MODES[self.made_in]():
            self.at, self.k_at = map(self.encoding.prepare, (self.pos, self.k_pos))

    @rule(
        mode=st.sampled_from([*MODES.values()]),
        dtype=st.sampled_from([torch.float32, *CLOSE]),
        groups=st.sampled_from([4, 2, 1]),
        where=st.sampled_from(["bare", "prepared", "prepared", "none"]),
        which=st.integers(0, 2),
    )
    def call_as(self, mode, dtype, groups, where, which):
        """Change the settings of the next calls."""
        if mode is torch.enable_grad and (self.made_in == "inference" or self.pos.is_inference()):
            mode = torch.no_grad
        self.mode, self.dtype, self.groups = mode, dtype, groups
        self.where = "bare" if where == "none" and self.encoding.axes > 1 else where
        self.mask = None if self.where == "none" else self.masks[which % len(self.masks)]

    @property
    def ats(self):
        where = {"bare": (self.pos, self.k_pos), "prepared": (self.at, self.k_at), "none": ()}
        return where[self.where]

    def use(self):
        queries, keys = self.sizes if self.where != "none" else self.sizes[:1] * 2
        with self.mode():
            q = torch.randn(2, HEADS, queries, DIM, dtype=self.dtype)
            k, v = torch.randn(2, 2, self.groups, keys, DIM, dtype=self.dtype)
            out = attend(q, k, v, self.encoding, *self.ats, mask=self.mask)
            alone, mask = copy.deepcopy((self.encoding, self.mask))
            fresh = (*map(cloned, self.ats),)
            expected = attend(q, k, v, alone, *fresh, mask=mask, implementation="reference")
            close(out, expected, CLOSE[self.dtype] * self.largest)

    @property
    def largest(self):
        """The largest weight, at least 1: some ways add to weights, and scores round as they do."""
        weights = [x.detach().abs().max().item() for x in self.encoding.parameters()]
        return min(max([1.0, *weights]), 10.0)

    @rule(times=st.integers(1, 3))
    def call(self, times):
        for _ in range(times):
            self.use()

    @rule(by=st.integers(1, 3), both=st.booleans())
    def move_positions(self, by, both):
        self.move(by)
        if both:
            self.move_keys(by)
        self.use()

    @rule(how=st.sampled_from(TENSOR_WRITES), which=st.integers(0, 20), by=st.integers(1, 3))
    def write_prepared(self, how, which, by):
        if self.name not in ALONE:
            return
        leaves = tree_leaves((self.at, self.k_at))
        write_tensor(leaves[which % len(leaves)], how, by)
        self.use()

    @rule(how=st.sampled_from(TENSOR_WRITES))
    def write_attributes(self, how):
        if not is_rotary(self.encoding):
            for _, _, x in attributes(self.encoding):
                write_tensor(x, how, 3)
            self.prepare()


class Layers(Writes):
    """A stack of layers with caches, whose branches go on from the same tokens."""

    @initialize(
        name=st.sampled_from([name for name in ENCODINGS if name != "Normalized"]),
        count=st.integers(1, 3),
        groups=st.sampled_from([4, 2, 1]),
        frozen=st.booleans(),
        seed=st.integers(0, 2**16),
    )
    def begin(self, name, count, groups, frozen, seed):
        torch.manual_seed(seed)
        self.encoding = made(name).requires_grad_(not frozen)
        additive = "on_embeddings" in self.encoding.acts_on
        each = [self.encoding, *[NoPE() if additive else self.encoding] * (count - 1)]
        self.layers = nn.ModuleList([SelfAttention(WIDTH, HEADS, e, groups) for e in each])
        self.begin_text()

    @rule()
    def begin_text(self):
        self.texts, self.written = [(Cache(), torch.randn(2, 0, WIDTH))], False

    def wrote(self):
        self.written = True

    @torch.no_grad()
    def use(self):
        x = torch.randn(1, 3, WIDTH)
        close(self.run(x, 0), self.run(x, 0, layers=copy.deepcopy(self.layers), path="reference"))

    def run(self, x, start, cache=None, layers=None, path="auto", mask=None):
        pos = folded(64, self.encoding.axes)[start : start + x.shape[1]]
        for layer in self.layers if layers is None else layers:
            x = layer(x, pos, masks.causal() if mask is None else mask, path, cache)
        return x

    @rule(
        which=st.integers(0, 5), count=st.sampled_from([1, 1, 1, 4]), mode=st.sampled_from([*MODES])
    )
    def step(self, which, count, mode):
        which %= len(self.texts)
        cache, before = self.texts[which]
        with torch.no_grad() if mode == "grad" else MODES[mode]():
            start, new = before.shape[1], torch.randn(len(before), count, WIDTH)
            x = torch.cat((before, new), 1)
            alone, branch = copy.deepcopy((self.layers, cache))
            out = self.run(new, start, cache)
            assert cache.tokens == x.shape[1]
            close(out, self.run(new, start, branch, alone), says="a copy of layers and cache")
            if not self.written or (len(self.layers) == 1 and goes_by_scores(self.encoding)):
                whole = self.run(x, 0, None, copy.deepcopy(self.layers), "reference")
                close(out, whole[:, start:], says="the whole text")
        self.texts[which] = cache, x

    @rule(which=st.integers(0, 5), deep=st.booleans())
    def branch(self, which, deep):
        if len(self.texts) < 4:
            cache, x = self.texts[which % len(self.texts)]
            self.texts.append(((copy.deepcopy if deep else copy.copy)(cache), x))

    @rule(which=st.integers(0, 5), tokens=st.integers(1, 6))
    def crop(self, which, tokens):
        cache, x = self.texts[which % len(self.texts)]
        kept = min(tokens, x.shape[1])
        if kept:
            cache.crop(kept)
            self.texts[which % len(self.texts)] = cache, x[:, :kept]

    @rule(which=st.integers(0, 5), index=st.lists(st.integers(0, 3), min_size=1, max_size=3))
    def reorder(self, which, index):
        cache, x = self.texts[which % len(self.texts)]
        if x.shape[1]:
            chosen = torch.tensor(index) % len(x)
            cache.reorder(chosen)
            self.texts[which % len(self.texts)] = cache, x[chosen]

    @rule(which=st.integers(0, 5))
    def refuse(self, which):
        cache, x = self.texts[which % len(self.texts)]
        of_others = masks.documents(torch.zeros(x.shape[1] + 3, dtype=torch.long))
        with pytest.raises(ValueError, match="positions for"):
            self.run(torch.randn(len(x), 1, WIDTH), x.shape[1], cache, mask=of_others)
        assert cache.tokens == x.shape[1]


TestCalls = run_as(Calls, 60, 20)
TestLayers = run_as(Layers, 30, 15)
