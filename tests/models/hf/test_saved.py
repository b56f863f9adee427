"""Test encodings rebuilt from a config against the original encodings."""

import json
from pathlib import Path

import pytest
import torch
from torch import nn

from posenc import ALiBi, NoPE, Sum, T5Bias, attend, catalog
from posenc.encodings.temperature import Temperature
from posenc.models.hf.saved import OF_EVERY_MODULE, described, restored

FILE = Path("config.json")


def again(*encodings):
    return restored(json.loads(json.dumps(described(encodings), sort_keys=True)), FILE)


def alike(one, other):
    if isinstance(one, torch.Tensor):
        return type(one) is type(other) and one.dtype == other.dtype and torch.equal(one, other)
    return type(one) is type(other) and one == other


@pytest.mark.parametrize("card", catalog.CATALOG, ids=lambda card: card.name)
def test_every_encoding_is_made_again_exactly(card):
    encoding = Sum(card.make(16, 2), card.make(16, 2))
    (copy,) = again(encoding)
    for one, other in zip(encoding.modules(), copy.modules(), strict=True):
        plain = {key: value for key, value in vars(one).items() if key not in OF_EVERY_MODULE}
        assert type(one) is type(other)
        assert plain.keys() == vars(other).keys() - OF_EVERY_MODULE
        assert all(alike(value, getattr(other, key)) for key, value in plain.items())
    shapes = [(n, p.shape, p.dtype, p.requires_grad) for n, p in encoding.named_parameters()]
    assert shapes == [(n, p.shape, p.dtype, p.requires_grad) for n, p in copy.named_parameters()]
    copy.load_state_dict(encoding.state_dict(), assign=True)
    assert repr(copy) == repr(encoding)


def test_an_encoding_that_has_been_used_is_described_as_a_new_one():
    used, q = ALiBi(4), torch.randn(1, 4, 5, 8)
    attend(q, q, q, used)
    assert described([used]) == described([ALiBi(4)])


def test_layers_that_share_an_encoding_still_do():
    shared = T5Bias(4)
    one, other, last = again(shared, ALiBi(4), shared)
    assert one is last
    assert one is not other


def with_a(value):
    encoding = Temperature(8)
    encoding.extra = value
    return encoding


def test_numbers_are_kept_to_the_last_bit():
    freqs = torch.rand(50, dtype=torch.float64) / 3
    (copy,) = again(with_a((0.1, float("inf"), [None, freqs])))
    assert copy.extra[:2] == (0.1, float("inf"))
    assert torch.equal(copy.extra[2][1], freqs)


class Gated(nn.Module):
    pass


@pytest.mark.parametrize(
    ("encoding", "why"),
    [
        (type("Mine", (ALiBi,), {})(4), "Mine is not a class of posenc"),
        (Sum(NoPE(), type("RoPE", (NoPE,), {})()), "RoPE is not a class of posenc"),
        (lambda tokens: NoPE(), "function is not an encoding"),
        (with_a(Gated()), "Gated is not a class of posenc"),
        (with_a(print), "Temperature contains a builtin_function_or_method"),
        (with_a(torch.zeros(2**17)), "Temperature contains a Tensor"),
    ],
    ids=["own class", "same name", "function", "own module", "a function in it", "too large"],
)
def test_what_a_config_cannot_hold_is_said(encoding, why):
    assert described([encoding])["refused"] == why


@pytest.mark.parametrize(
    "change",
    [
        lambda one: one.update({"class": "Linear"}),
        lambda one: one.update({"class": "os.system"}),
        lambda one: one["plain"].update(__class__="T5Bias"),
        lambda one: one["plain"].update(_parameters={}),
        lambda one: one["plain"].update({"on scores": 1}),
        lambda one: one["learned"][0][1].update(numbers="load"),
        lambda one: one["learned"][0][1].update(shape=[2**30, 2**30]),
        lambda one: one["learned"][0][1].update(shape=[-1]),
        lambda one: one.pop("parts"),
        lambda one: one["plain"].update(reach={"tensor": [1], "numbers": "int64", "shape": [2]}),
    ],
)
def test_what_a_config_should_not_say_is_refused_in_a_line(change):
    entry = described([T5Bias(4)])
    change(entry["encodings"][0])
    with pytest.raises(ValueError, match=r"^config.json:posenc: must describe enc"):
        restored(entry, FILE)
