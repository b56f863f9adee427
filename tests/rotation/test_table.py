"""The table of cosines and sines: made once, mapped, and served in the other layout too."""

import torch
from rotation_cases import (
    LAYOUTS,
    TOKENS,
    by,
    heads,
    layouts,
)
from torch.utils._python_dispatch import TorchDispatchMode

from posenc import RoPE, attend
from posenc.rotation.rotate import formula, rotate
from posenc.rotation.table import Ready


@layouts
def test_what_is_mapped_loses_its_other_form_and_stays_right(layout, amount):
    x, at = heads(32), by(layout)
    assert len(at.forms) == {"interleaved": 1, "half": 2}[layout]
    mapped = torch.utils._pytree.tree_map(lambda t: t.flip(-2), at)
    assert type(mapped) is Ready
    assert not mapped.forms
    flipped = rotate(x.flip(-2), mapped, layout).flip(-2)
    torch.testing.assert_close(flipped, rotate(x, at, layout), rtol=0, atol=1e-6)


def test_a_table_made_for_one_layout_serves_the_other(amount):
    x = heads(32)
    for layout, other in (LAYOUTS, LAYOUTS[::-1]):
        made = rotate(x, by(other), layout)
        torch.testing.assert_close(made, formula(x, by(), layout), rtol=0, atol=1e-6)


class Count(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.names.append(func.overloadpacket.__name__)
        return func(*args, **(kwargs or {}))


@layouts
@torch.no_grad()
def test_what_is_written_to_a_table_turns_the_next_token(layout):
    """A token that is decoded, whose table is then that of another angle."""
    rope = RoPE(32, layout=layout)
    at, other = rope.prepare(torch.tensor([5])), rope.prepare(torch.tensor([9]))
    x = torch.randn(2, 3, 1, 32)
    torch.testing.assert_close(rope.on_queries(x, at), formula(x, at, layout))
    at.cos.copy_(other.cos)
    at.sin.copy_(other.sin)
    torch.testing.assert_close(rope.on_queries(x, at), formula(x, other, layout))


@layouts
def test_24_layers_make_cos_and_sin_once(layout):
    rope, pos, x = RoPE(32, layout=layout), torch.arange(TOKENS), heads(32)
    with Count() as count:
        at = rope.prepare(pos)
    once = {name: count.names.count(name) for name in ("cos", "sin", "complex", "neg")}
    with Count() as count:
        at = rope.prepare(pos)
        for _ in range(24):
            x = attend(x, x, x, rope, at)
    assert {name: count.names.count(name) for name in once} == once
    assert (once["cos"], once["sin"], once["complex"]) == (1, 1, layout == "interleaved")
