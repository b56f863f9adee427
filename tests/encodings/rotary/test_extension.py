"""Against transformers' own functions at every published configuration, the formulas with a base in
plain Python, and the reference values that tests/data/rope_configs.json was published with."""

import math

import pytest
import torch
from published import MODELS
from refusals import refused
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from posenc import Mixed, axial, frequencies, mrope
from posenc.encodings.rotary.extension import (
    by_parts,
    dynamic_ntk,
    interpolate,
    llama3,
    longrope,
    longrope_gain,
    ntk,
    riflex,
    turned,
    yarn,
    yarn_gain,
    yarn_logit_gain,
)

SCALED = {
    name: model
    for name, model in MODELS.items()
    if (model["rope_scaling"] or {}).get("rope_type", "default") not in ("default", "mrope")
}


def ours(model, length):
    """Return frequencies and gain, from the settings in the file."""
    theta, s = frequencies(model["head_dim"], model["rope_theta"]), model["rope_scaling"]
    trained = s.get(
        "original_max_position_embeddings", model.get("original_max_position_embeddings")
    )
    match s["rope_type"]:
        case "linear":
            return interpolate(theta, s["factor"]), 1.0
        case "llama3":
            ends = s["low_freq_factor"], s["high_freq_factor"]
            return llama3(theta, s["factor"], trained, *ends), 1.0
        case "yarn":
            fast, slow = s.get("beta_fast", 32.0), s.get("beta_slow", 1.0)
            gain = yarn_gain(s["factor"], s.get("mscale", 1.0), s.get("mscale_all_dim", 0.0))
            rounded = s.get("truncate", True)
            return yarn(theta, s["factor"], trained, fast, slow, rounded), gain
        case "longrope":
            factor = model["max_position_embeddings"] / trained
            made = longrope(theta, length, trained, s["short_factor"], s["long_factor"])
            return made, longrope_gain(factor, trained)
    raise AssertionError(s)


def theirs(model, length, **more):
    s = {k: v for k, v in (model["rope_scaling"] or {}).items() if k != "legacy_type"} | more
    trained = model.get("original_max_position_embeddings", model["max_position_embeddings"])
    s = {"rope_theta": model["rope_theta"], "original_max_position_embeddings": trained} | s
    config = LlamaConfig(
        hidden_size=model["head_dim"],
        num_attention_heads=1,
        max_position_embeddings=model["max_position_embeddings"],
        rope_parameters=s,
    )
    return ROPE_INIT_FUNCTIONS[s["rope_type"]](config, "cpu", seq_len=length)


def ulps(made, expected):
    """Return the largest distance in float32 numbers; `expected` is computed in float32."""
    return (made.float().view(torch.int32) - expected.float().view(torch.int32)).abs().max().item()


def lengths(model):
    trained = model.get("original_max_position_embeddings")
    return [None] if trained is None else [1, trained - 1, trained, trained + 1, 10**6]


@pytest.mark.parametrize("name", SCALED)
def test_equals_transformers_at_every_published_configuration(name):
    for length in lengths(SCALED[name]):
        (made, gain), (expected, factor) = ours(SCALED[name], length), theirs(SCALED[name], length)
        assert ulps(made, expected) <= 4
        assert gain == pytest.approx(factor, rel=1e-12)


@pytest.mark.parametrize("name", SCALED)
def test_equals_the_published_reference_values(name):
    model = SCALED[name]
    trained = model.get("original_max_position_embeddings", 0)
    refs = model["ref"]
    kinds = [(k, refs[k]) for k in ("short", "long")] if "short" in refs else [("short", refs)]
    for which, ref in kinds:
        made, gain = ours(model, trained if which == "short" else trained + 1)
        middle = made[len(made) // 2]
        shown = [made[0], middle, made[-1], made.sum()]
        expected = [ref["first"], ref["mid"], ref["last"], ref["sum"]]
        torch.testing.assert_close(
            torch.stack(shown), torch.tensor(expected, dtype=torch.float64), rtol=1e-6, atol=0.0
        )
        assert gain == pytest.approx(ref["attention_factor"], rel=1e-9)


@pytest.mark.parametrize("dim", [4, 64, 96, 128, 256])
@pytest.mark.parametrize("factor", [0.5, 1.0, 2.0, 7.5])
def test_ntk_is_another_base(dim, factor):
    base = 10_000.0 * factor ** (dim / (dim - 2))
    torch.testing.assert_close(
        ntk(frequencies(dim), factor), frequencies(dim, base), rtol=1e-13, atol=0
    )


@pytest.mark.parametrize("length", [1, 2047, 2048, 2049, 4096, 100_000])
def test_dynamic_ntk_equals_transformers_at_any_length(length):
    model = {"head_dim": 64, "rope_theta": 10_000.0, "max_position_embeddings": 2048}
    model["rope_scaling"] = {"rope_type": "dynamic", "factor": 4.0}
    expected, _ = theirs(model, length)
    assert ulps(dynamic_ntk(frequencies(64), length, 2048, 4.0), expected) <= 32  # a float32 power


def test_dynamic_ntk_remembers_nothing():
    """F13: in transformers 5.23 a long text changes what a shorter one gets after it."""
    order = [8192, 4096, 2048, 2047, 4096, 8192, 1]
    fresh = {n: dynamic_ntk(frequencies(64), n, 2048, 2.0) for n in sorted(order)}
    for length in order:
        assert torch.equal(dynamic_ntk(frequencies(64), length, 2048, 2.0), fresh[length])
    for short in (1, 2047, 2048):
        assert torch.equal(fresh.get(short, fresh[1]), frequencies(64))
    assert (fresh[4096][1:] < frequencies(64)[1:]).all()


def test_the_papers_ramp_and_the_deployed_one_differ():
    """YaRN eq. 18 in loops: a ramp over turns. The deployed one, over pairs, is another."""
    theta, s, trained = frequencies(128), 16.0, 4096
    expected = []
    for j in range(64):
        freq = 10_000.0 ** (-2 * j / 128)
        r = trained * freq / (2 * math.pi)
        kept = 0.0 if r < 1 else 1.0 if r > 32 else (r - 1) / 31
        expected.append((1 - kept) * freq / s + kept * freq)
    paper = by_parts(theta, s, trained)
    torch.testing.assert_close(
        paper, torch.tensor(expected, dtype=torch.float64), rtol=1e-13, atol=0
    )
    deployed = yarn(theta, s, trained, rounded=False)
    assert ((deployed / paper - 1).abs() > 0.5).any()
    middle = (turned(theta, trained) > 1) & (turned(theta, trained) < 32)
    assert torch.equal(deployed[~middle], paper[~middle])


@pytest.mark.parametrize("rounded", [True, False])
@pytest.mark.parametrize(("fast", "slow"), [(32, 1), (1, 1), (4, 1), (1e6, 1e-6), (64, 0.25)])
@pytest.mark.parametrize("dim", [4, 6, 64, 128])
def test_yarn_over_all_boundaries(rounded, fast, slow, dim):
    """F18: the ends clamp at 0 and d − 1, not at d/2 − 1, which is off by 27 %."""
    model = {"head_dim": dim, "rope_theta": 10_000.0, "max_position_embeddings": 8192}
    model["rope_scaling"] = {"rope_type": "yarn", "factor": 8.0, "truncate": rounded}
    more = {"beta_fast": fast, "beta_slow": slow, "original_max_position_embeddings": 4096}
    expected, _ = theirs(model, None, **more)
    made = yarn(frequencies(dim), 8.0, 4096, fast, slow, rounded)
    torch.testing.assert_close(made.float(), expected, rtol=1e-5, atol=0)


def test_deepseek_has_two_scales():
    """Follows DeepSeek-V3's modeling code, with get_mscale written out."""
    g = 0.1 * math.log(40.0) + 1
    assert yarn_gain(40.0, 1.0, 1.0) == 1.0
    assert yarn_logit_gain(40.0, 1.0) == pytest.approx(g * g)
    assert yarn_gain(40.0, 0.707, 0.0) == pytest.approx(0.0707 * math.log(40.0) + 1)
    assert yarn_logit_gain(40.0, 0.0) == yarn_gain(0.5) == yarn_logit_gain(1.0, 1.0) == 1.0


def test_an_empty_band_divides_nothing():
    """Llama-4-Scout has low_freq_factor = high_freq_factor: 0/0 in a formula without care."""
    theta = torch.tensor([8.0, 2.0, 0.5], dtype=torch.float64) * math.pi  # 4, 1 and ¼ turns in one
    made = llama3(theta, 16.0, 1, low=1.0, high=1.0)
    torch.testing.assert_close(made, theta / torch.tensor([1.0, 16.0, 16.0], dtype=torch.float64))


def test_the_switch_of_longrope_is_past_the_trained_length():
    """F16: up to and including the trained length the short list, then the long one."""
    theta, short, long = frequencies(8), [1.0, 1.0, 2.0, 2.0], [1.0, 4.0, 8.0, 16.0]
    for length, factors in [(1, short), (4095, short), (4096, short), (4097, long), (10**6, long)]:
        expected = [10.0**-j / factors[j] for j in range(4)]
        made = longrope(theta, length, 4096, short, long)
        torch.testing.assert_close(made, torch.tensor(expected, dtype=torch.float64))


def test_nothing_is_scaled_by_a_factor_of_one():
    theta = frequencies(32, 500_000.0)
    for made in (interpolate(theta, 1.0), ntk(theta, 1.0), yarn(theta, 1.0, 4096)):
        torch.testing.assert_close(made, theta, rtol=1e-15, atol=0)
    assert yarn_gain(1.0) == longrope_gain(1.0, 4096) == 1.0


def test_they_compose():
    """Interpolation after NTK, and of a matrix row by row: pure functions of θ."""
    theta = frequencies(16)
    assert torch.equal(interpolate(ntk(theta, 2.0), 4.0), ntk(theta, 2.0) / 4.0)
    assert torch.equal(ntk(torch.stack((theta, theta)), 2.0)[1], ntk(theta, 2.0))


@pytest.mark.parametrize("bad", [0.0, -2.0, math.nan, math.inf])
def test_impossible_factors_are_refused(bad):
    theta = frequencies(8)
    calls = [
        lambda: interpolate(theta, bad),
        lambda: ntk(theta, bad),
        lambda: dynamic_ntk(theta, 4096, 2048, bad),
        lambda: by_parts(theta, bad, 2048),
        lambda: yarn(theta, bad, 2048),
        lambda: yarn_gain(bad),
        lambda: longrope_gain(bad, 2048),
        lambda: longrope(theta, 10, 20, [1.0, 1.0, 1.0, bad], [1.0] * 4),
    ]
    for call in calls:
        with pytest.raises(ValueError, match=r"must be a positive number, got"):
            call()


def test_other_impossible_arguments_are_refused():
    theta = frequencies(8)
    with refused(ValueError, 0, "`slow`", "`fast`", 32, 1):
        yarn(theta, 2.0, 2048, fast=1, slow=32)
    with refused(ValueError, 0, "`slow`", "`fast`", 4, 1):
        llama3(theta, 2.0, 2048, low=4, high=1)
    with refused(ValueError, "`long`", 4, 3):
        longrope(theta, 21, 20, [1.0] * 4, [1.0] * 3)
    with refused(ValueError, "`trained`", 0):
        yarn(theta, 2.0, 0)
    for one_pair in (lambda f: yarn(f, 2.0, 2048), lambda f: ntk(f, 2.0)):
        with refused(ValueError, 1):
            one_pair(frequencies(2))


# Matrices of frequencies

MATRIX = {
    "interpolate": lambda f: interpolate(f, 3.0),
    "ntk": lambda f: ntk(f, 4.0),
    "dynamic_ntk": lambda f: dynamic_ntk(f, 60, 14, 2.0),
    "by_parts": lambda f: by_parts(f, 4.0, 200),
    "llama3": lambda f: llama3(f, 8.0, 300),
    "yarn": lambda f: yarn(f, 4.0, 200),
    "yarn, not rounded": lambda f: yarn(f, 4.0, 200, rounded=False),
}
along = pytest.mark.parametrize("extend", MATRIX.values(), ids=MATRIX)


@along
@pytest.mark.parametrize("axes", [2, 3])
def test_each_axis_of_axial_frequencies_is_extended_as_if_alone(extend, axes):
    """The fastest pair of the second axis is the fastest, wherever it lies."""
    dim = 16
    made, alone = extend(axial(axes * dim, axes)), extend(frequencies(dim))
    for axis in range(axes):
        part = slice(axis * dim // 2, (axis + 1) * dim // 2)
        torch.testing.assert_close(made[axis, part], alone, rtol=1e-14, atol=0)
        assert made[axis].count_nonzero() == dim // 2


def test_ntk_leaves_the_fastest_pair_of_the_second_axis():
    assert ntk(axial(8), 4.0)[1].tolist() == pytest.approx([0, 0, 1, 0.01 / 4])
    assert yarn(axial(64), 2.0, 14).shape == (2, 32)


@along
@pytest.mark.parametrize("interleaved", [False, True])
def test_m_rope_is_extended_before_or_after_it_is_dealt_out(extend, interleaved):
    """A token of text stands alike on all axes, and turns as with RoPE."""
    theta, sections = frequencies(32), (6, 5, 5)
    torch.testing.assert_close(
        extend(mrope(theta, sections, interleaved)),
        mrope(extend(theta), sections, interleaved),
        rtol=1e-14, atol=0,
    )  # fmt: skip


@along
def test_mixed_frequencies_keep_their_directions(extend):
    """|θ| of each pair is extended as axial's; the direction that the pair turns along stays."""
    theta = Mixed(32, heads=3).freqs.detach()
    made = extend(theta)
    assert made.shape == theta.shape
    alone = extend(frequencies(16, 10.0))
    torch.testing.assert_close(
        made.norm(dim=0).double(), alone.repeat(2).expand(3, -1), rtol=1e-5, atol=0
    )
    torch.testing.assert_close(
        torch.atan2(made[0], made[1]), torch.atan2(theta[0], theta[1]), rtol=1e-5, atol=1e-5
    )


def test_pairs_that_do_not_turn_stay_so():
    for extend in MATRIX.values():
        made = extend(axial(14, 2))  # the last pair is left over
        assert made[:, -1].tolist() == [0, 0]
        assert made.isfinite().all()


def test_a_matrix_without_a_ladder_is_refused():
    slanted = torch.tensor([[1.0, 0.5, 0.4], [0.3, 0.2, 0.1]], dtype=torch.float64)
    for extend in (lambda f: ntk(f, 2.0), lambda f: yarn(f, 2.0, 99)):
        with refused(ValueError, "`axial`"):
            extend(slanted)
        with refused(ValueError, 1):
            extend(axial(4))
    assert by_parts(slanted, 2.0, 99).shape == slanted.shape


def test_riflex_changes_the_pair_whose_period_is_nearest():
    """The example of their `identify_k` (HunyuanVideo: b=256, d=16, N=48 gives k=4 and period 50),
    and `freqs[k-1] = 0.9 * 2 * pi / L_test` of riflex_utils.py."""
    theta = [256 ** (-2 * j / 16) for j in range(8)]
    theta[4 - 1] = 0.9 * 2 * math.pi / 66
    assert riflex(frequencies(16, 256.0), 66, repeats=48).tolist() == pytest.approx(
        theta, rel=1e-12
    )
    theta[4 - 1] /= 0.9
    of_equation_8 = riflex(frequencies(16, 256.0), 66, repeats=48, share=1.0)
    assert of_equation_8.tolist() == pytest.approx(theta, rel=1e-12)


def test_riflex_takes_one_axis():
    with pytest.raises(ValueError, match=r"`freqs` must be θ of one axis.*\(2, 8\)"):
        riflex(axial(16), 66, repeats=48)
