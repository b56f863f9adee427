"""Test layouts for video against values recorded from JJJYmmm/Multimodal-RoPEs at cd413b9e.

video_layouts.json has two texts of a batch, padded on the left, with pictures and videos, merged
2 × 2. It was made by the functions of `multimodal_ropes/pos_design` and `freq_allocation` there,
without the lines that divide videos into frames. "mmrope scaled" has the `position_scale`
(2, 1.5, 0.5).
"""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from refusals import refused

from posenc import RoPE
from posenc.encodings.rotary.layouts import by_layout
from posenc.encodings.rotary.mixed import Mixed
from posenc.positions import multimodal
from posenc.positions.rules import LAYOUTS, RULES

RECORD = json.loads(Path(__file__).with_name("video_layouts.json").read_text("utf-8"))
KINDS, MASK = torch.tensor(RECORD["kinds"]), torch.tensor(RECORD["mask"])
SIZES = dict(images=RECORD["images"], videos=RECORD["videos"], mask=MASK)
THETA = 1 / torch.arange(1, 17).double()


@pytest.mark.parametrize("name", RECORD["ids"])
def test_ids_and_delta_are_those_of_the_authors(name):
    """Compare all tokens but padding; the authors' delta counts padding as tokens."""
    rule = name
    if name == "mmrope scaled":
        rule = replace(LAYOUTS["mmrope"], steps=(2.0, 1.5, 0.5))
    ids, delta = multimodal(KINDS, rule, **SIZES)
    expected = torch.tensor(RECORD["ids"][name]).float()
    if ids.shape[-1] == 1:
        expected = expected[..., :1]
    torch.testing.assert_close(ids[MASK == 1].float(), expected[MASK == 1], atol=1e-4, rtol=0)
    counted = torch.tensor(RECORD["delta"][name]).float() + (MASK == 0).sum(1)
    torch.testing.assert_close(delta.float(), counted, atol=1e-4, rtol=0)


def test_layouts_that_share_ids_share_a_rule():
    """The authors' entry.py gives mhrope the ids of mrope-interleave, and ilrope of omnirope."""
    rows = [multimodal(KINDS, n, **SIZES)[0] for n in ("mrope-interleave", "mhrope", "ilrope")]
    assert torch.equal(rows[0], rows[1])
    assert torch.equal(rows[0], rows[2])
    assert not {*LAYOUTS} & {*RULES}


@pytest.mark.parametrize("name", LAYOUTS)
def test_every_layout_of_ids_has_frequencies(name):
    assert by_layout(name, THETA, (6, 5, 5)).shape[-1] == len(THETA)


def test_frames_between_timestamps_are_separate_runs():
    """A video of three frames has the ids of three pictures."""
    kinds = torch.tensor([[0, 2, 2, 0, 2, 2, 0, 2, 2]])
    rule = replace(LAYOUTS["videorope"], frames=True)
    pictures = multimodal(kinds.clamp(max=1), "videorope", images=[(1, 2, 4)] * 3)
    frames = multimodal(kinds, rule, videos=[(3, 2, 4)])
    for one, other in zip(frames, pictures, strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize(
    ("name", "sections"),
    [("mrope", (4, 6, 6)), ("mrope-interleave", (6, 5, 5)), ("mmrope", ()), ("mhrope", (2, 3, 2))],
)
def test_each_pair_follows_the_axis_that_the_authors_give_it(name, sections):
    axes = torch.tensor(RECORD["axes"][name])
    found = by_layout(name, THETA, sections)
    expected = torch.stack([torch.where(axes == axis, THETA, 0) for axis in range(3)])
    torch.testing.assert_close(found, expected)


def test_videorope_has_rows_and_columns_in_turn_and_then_time():
    """The order in VideoRoPE's own code; the recorded one gives pair 0 to time."""
    axes = torch.tensor([1, 2] * 6 + [0] * 4)
    found = by_layout("videorope", THETA, (4, 6, 6))
    expected = torch.stack([torch.where(axes == axis, THETA, 0) for axis in range(3)])
    torch.testing.assert_close(found, expected)
    recorded = RECORD["axes"]["videorope"]
    assert (recorded[0], recorded[12:]) == (0, [0, 0, 0, 0])
    hope = by_layout("hope", THETA, (4, 6, 6))
    torch.testing.assert_close(hope[1:], expected[1:])
    assert not hope[0].any()


def test_theta_and_ids_of_a_layout_fit_an_encoding():
    """Rotate by "videorope", and each head by one axis as in "mhrope"."""
    q = torch.randn(2, 7, KINDS.shape[1], 32)
    for name, sections in (("videorope", (4, 6, 6)), ("mhrope", (2, 3, 2))):
        ids, _ = multimodal(KINDS, name, **SIZES)
        freqs = by_layout(name, THETA, sections)
        if name == "mhrope":
            encoding = Mixed(32, 7, freqs=freqs, learned=False)
        else:
            encoding = RoPE(freqs, 32)
        turned = encoding.on_queries(q, encoding.prepare(ids))
        torch.testing.assert_close(turned.norm(dim=-1), q.norm(dim=-1))
        assert not torch.equal(turned, q)


def test_an_unknown_layout_names_the_nearest():
    with refused(ValueError, "`rule`", "videorope"):
        multimodal(KINDS, "video-rope", **SIZES)
    with refused(ValueError, "`name`", "circlerope"):
        by_layout("circlerope", THETA)
