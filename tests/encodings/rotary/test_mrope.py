"""M-RoPE against the rotations of the models in transformers that use it, and against RoPE."""

from importlib import import_module

import pytest
import torch
from refusals import refused

from posenc import RoPE, create, mrope, positions
from posenc.core.frequencies import frequencies
from posenc.encodings.rotary.mrope import spatial_first


def models_own(folder, names, points, q, k, **parameters):
    """Return q and k as the model of transformers turns them; `points` is (axis, batch, token)."""
    home = f"transformers.models.{folder}"
    config = getattr(import_module(f"{home}.configuration_{folder}"), f"{names}Config")(
        head_dim=q.shape[-1],
        hidden_size=q.shape[-1] * q.shape[1],
        num_attention_heads=q.shape[1],
        rope_parameters={"rope_type": "default", "rope_theta": 1e6, **parameters},
    )
    model = import_module(f"{home}.modeling_{folder}")
    table = getattr(model, f"{names.removesuffix('Text')}RotaryEmbedding", None)
    table = table or getattr(model, f"{names}RotaryEmbedding")
    return model.apply_rotary_pos_emb(q, k, *table(config)(q, points.movedim(-1, 0)))


def material(dim):
    points = torch.randint(0, 300, (2, 7, 3))
    return points, *torch.randn(2, 2, 4, 7, dim).unbind()


def assert_alike(made, expected):
    """Theirs is in float32 throughout: angles of up to 300 radians, off by up to 3e-5."""
    torch.testing.assert_close(made, expected, rtol=0, atol=2e-4)


@pytest.mark.parametrize("sections", [[16, 24, 24], [1, 2, 61], [40, 12, 12]])
def test_contiguous_equals_qwen2_vl(sections):
    points, q, k = material(128)
    expected = models_own("qwen2_vl", "Qwen2VLText", points, q, k, mrope_section=sections)
    rope = RoPE(mrope(frequencies(128, 1e6), sections), layout="half")
    assert_alike(rope(q, k, points), expected)


@pytest.mark.parametrize("sections", [[24, 20, 20], [22, 21, 21], [34, 20, 10]])
def test_interleaved_equals_qwen3_vl(sections):
    points, q, k = material(128)
    expected = models_own("qwen3_vl", "Qwen3VLText", points, q, k, mrope_section=sections)
    rope = RoPE(mrope(frequencies(128, 1e6), sections, interleaved=True), layout="half")
    assert_alike(rope(q, k, points), expected)


def test_contiguous_over_interleaved_channels_of_half_a_head_equals_glm4v():
    points, q, k = material(128)
    given = {"mrope_section": [8, 12, 12], "partial_rotary_factor": 0.5}
    expected = models_own("glm4v", "Glm4vText", points, q, k, **given)
    rope = RoPE(mrope(frequencies(64, 1e6), [8, 12, 12]), dim=128, layout="interleaved")
    assert_alike(rope(q, k, points), expected)


def test_spatial_first_equals_ernie_whose_config_lists_h_w_t():
    points, q, k = material(128)
    given = {"mrope_section": [22, 22, 20]}
    expected = models_own("ernie4_5_vl_moe", "Ernie4_5_VLMoeText", points, q, k, **given)
    rope = RoPE(spatial_first(frequencies(128, 1e6), [20, 22, 22]), layout="interleaved")
    assert_alike(rope(q, k, points), expected)


def test_two_axes_take_turns():
    theta = mrope(frequencies(16), [4, 4], interleaved=True)
    assert theta[0, 0::2].equal(frequencies(16)[0::2])
    assert theta[1, 1::2].equal(frequencies(16)[1::2])
    assert theta.count_nonzero() == 8


EVERY_FORM = pytest.mark.parametrize(
    "theta",
    [
        mrope(frequencies(16), [2, 3, 3]),
        mrope(frequencies(16), [4, 2, 2], interleaved=True),
        spatial_first(frequencies(16), [2, 3, 3]),
    ],
    ids=["contiguous", "interleaved", "spatial first"],
)


@EVERY_FORM
def test_a_token_of_text_turns_exactly_as_with_rope(theta):
    q, k = torch.randn(2, 1, 2, 4, 16).unbind()
    text = torch.tensor([0, 7, 4095, 10**6])
    made, expected = RoPE(theta)(q, k, text[:, None].expand(4, 3)), RoPE(16)(q, k, text)
    assert made[0].equal(expected[0])
    assert made[1].equal(expected[1])


@EVERY_FORM
def test_each_pair_follows_one_axis(theta):
    assert (theta != 0).sum(0).tolist() == [1] * 8
    assert theta.sum(0).equal(frequencies(16))


def test_the_card_shares_the_pairs_as_qwen2_vl_does():
    theta = create("m-rope", dim=128, heads=2).freqs
    assert theta.equal(mrope(frequencies(128), [16, 24, 24]))
    points, q = positions.grid(2, 3, 4), torch.randn(1, 2, 24, 128)
    assert create("m-rope", dim=128, heads=2)(q, q, points)[0].equal(
        RoPE(theta, layout="half")(q, q, points)[0]
    )


def test_learned_frequencies_stay_learned():
    theta = torch.nn.Parameter(frequencies(8))
    mrope(theta, [2, 1, 1], interleaved=True).sum().backward()
    assert theta.grad.tolist() == [1, 1, 1, 1]


@pytest.mark.parametrize("sections", [[1, 1, 1], [3, 3, 3], [8, 0, 0], [9, -2, 1], []])
@pytest.mark.parametrize(
    "form", [mrope, lambda theta, s: mrope(theta, s, interleaved=True), spatial_first]
)
def test_every_pair_needs_an_axis_and_every_axis_a_pair(form, sections):
    with refused(ValueError, 8):
        form(frequencies(16), sections)


def test_says_which_shares_cannot_take_turns():
    with refused(ValueError, "`sections`"):
        mrope(frequencies(16), [2, 4, 2], interleaved=True)
    with refused(ValueError, "`sections`"):
        spatial_first(frequencies(16), [2, 4, 2])


def test_a_matrix_has_its_axes_already():
    with refused(ValueError, 8):
        mrope(mrope(frequencies(16), [2, 3, 3]), [2, 3, 3])
