"""The table of cosines and sines, however edited and copied, against the formula in float64."""

import copy
import io
import pickle
from itertools import product

import pytest
import torch
from rotation_cases import (
    DTYPES,
    LAYOUTS,
    TOKENS,
    as_complex,
    by,
    heads,
    layouts,
    ulps,
)
from thorough import some
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

from posenc import STRING, Mixed, RoPE, XPos, attend, positions
from posenc.rotation.rotate import formula, rotate
from posenc.rotation.table import Turn


def saved(at):
    file = io.BytesIO()
    torch.save(at, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


def from_numpy(x):
    x.detach().numpy()[...] *= 2


def one_row(x):
    x[..., 3:4, :] *= 2


EDITS = {
    "in place": lambda x: x.mul_(2),
    "one row": one_row,
    "past autograd": lambda x: x.data.mul_(2),
    "in the memory": from_numpy,
    "in inference mode": torch.inference_mode()(lambda x: x.mul_(2)),
}
COPIES = {
    "itself": lambda at: at,
    "copied": copy.copy,
    "copied deeply": copy.deepcopy,
    "copied with its encoding": lambda at: copy.deepcopy((RoPE(32), at))[1],
    "pickled": lambda at: pickle.loads(pickle.dumps(at)),
    "saved": saved,
    "moved": lambda at: at.to("cpu"),
    "cut": lambda at: at.slice_tokens(slice(0, TOKENS)),
    "continued": lambda at: at.slice_tokens(slice(0, 4)).append(at.slice_tokens(slice(4, None))),
    "replaced": lambda at: at._replace(sin=at.sin.clone()),
    "mapped": lambda at: tree_map(torch.clone, at),
}
MODES = {
    "grad": torch.enable_grad,
    "no_grad": torch.no_grad,
    "inference_mode": torch.inference_mode,
}


def assert_turns_by(x, at, cos, sin, layout):
    expected = as_complex(x, Turn(cos, sin), layout, None)
    close = {"rtol": ulps(x.dtype), "atol": 1e-5}
    torch.testing.assert_close(rotate(x, at, layout).double(), expected, **close)
    grad_of = x.detach().clone().requires_grad_()
    if not torch.is_inference_mode_enabled() and not at.cos.is_inference():
        with torch.enable_grad():
            made = rotate(grad_of, at, layout)
        torch.testing.assert_close(made.double(), expected, **close)


@pytest.mark.parametrize(
    ("way", "edit", "mode", "dtype", "layout"),
    some(product(COPIES, EDITS, MODES, DTYPES, LAYOUTS), 13),
    ids=str,
)
def test_edited_and_copied_it_turns_by_what_it_says(way, edit, mode, dtype, layout, amount):
    with MODES[mode]():
        x, rope = heads(32, dtype), RoPE(32, layout=layout)
        at = rope.prepare(torch.arange(TOKENS) * 1001)
        cos, sin = at.cos.double(), at.sin.double()
        assert_turns_by(x, at, cos, sin, layout)
        edited = cos.clone()
        EDITS[edit](edited)
        before = COPIES[way](at)
        EDITS[edit](at.cos)
        after = COPIES[way](at)
        assert_turns_by(x, at, edited, sin, layout)
        assert_turns_by(x, after, edited, sin, layout)
        shared = way in ("itself", "copied", "moved", "cut", "replaced")
        assert_turns_by(x, before, edited if shared else cos, sin, layout)
        EDITS[edit](after.sin)
        EDITS[edit](sin)
        assert_turns_by(x, after, edited, sin, layout)


LEARNED = {
    "RoPE": lambda: (RoPE(8, learned=True), torch.arange(9)),
    "RoPE of a Parameter": lambda: (RoPE(torch.nn.Parameter(torch.rand(4))), torch.arange(9)),
    "xPos": lambda: (XPos(torch.nn.Parameter(torch.rand(4))), torch.arange(9)),
    "RoPE-Mixed": lambda: (Mixed(8, heads=2), positions.grid(3, 3)),
    "STRING": lambda: (STRING(8), positions.grid(3, 3)),
}


@pytest.mark.parametrize("name", LEARNED)
@pytest.mark.parametrize("mode", ["no_grad", "inference_mode"])
@pytest.mark.parametrize("way", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
def test_copied_with_an_encoding_that_has_learned_it_still_fits(name, mode, way):
    """Together or alone, after a write to θ: tables keep the θ with which they were made."""
    encoding, pos = LEARNED[name]()
    q = torch.randn(1, 2, 9, 8)
    with torch.no_grad():
        for weight in encoding.parameters():
            weight.add_(0.25)
    with MODES[mode]():
        at = encoding.prepare(pos)
        expected = encoding.on_queries(q, at)
        for copied, copied_at in (way((encoding, at)), (way(encoding), at), (encoding, way(at))):
            assert copied.on_queries(q, copied_at).equal(expected)
            assert copied.on_keys(q, copied_at).equal(encoding.on_keys(q, at))


@pytest.mark.parametrize("name", LEARNED)
@torch.no_grad()
def test_a_step_of_training_is_seen_by_the_next_table(name):
    """Learned θ is read by `prepare`, so an older table keeps its angles."""
    encoding, pos = LEARNED[name]()
    q = torch.randn(1, 2, 9, 8)
    old = encoding.prepare(pos)
    before = encoding.on_queries(q, old)
    for weight in encoding.parameters():
        weight.data.add_(torch.rand_like(weight))
    assert encoding.on_queries(q, old).equal(before)
    fresh = copy.deepcopy(encoding)
    new = encoding.on_queries(q, encoding.prepare(pos))
    assert new.equal(fresh.on_queries(q, fresh.prepare(pos)))
    assert not new.allclose(before)


@layouts
def test_mapped_it_stays_right(layout, amount):
    x, at = heads(32), by()
    mapped = tree_map(lambda t: t.flip(-2), at)
    assert type(mapped) is Turn
    flipped = rotate(x.flip(-2), mapped, layout).flip(-2)
    torch.testing.assert_close(flipped, rotate(x, at, layout), rtol=0, atol=1e-6)


def test_one_table_serves_both_layouts(amount):
    x, at = heads(32), by()
    for layout in LAYOUTS:
        made = rotate(x, at, layout)
        torch.testing.assert_close(made, formula(x, at, layout), rtol=0, atol=1e-6)


class Count(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.names.append(func.overloadpacket.__name__)
        return func(*args, **(kwargs or {}))


@layouts
def test_24_layers_make_cos_and_sin_once(layout):
    rope, pos, x = RoPE(32, layout=layout), torch.arange(TOKENS), heads(32)
    with Count() as count:
        at = rope.prepare(pos)
        for _ in range(24):
            x = attend(x, x, x, rope, at)
    assert [count.names.count(name) for name in ("cos", "sin")] == [1, 1]
