"""The names of faults: implementations that are right pass, and each planted fault is named.

The implementations are written by hand here, with cos and sin of plain angles.
"""

import json
import math
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from refusals import refused

from posenc.lab.vectors.against import against
from posenc.models import published
from posenc.models.config import specify
from posenc.models.config.spec import Rotary

CONFIGS = published.configs()
LLAMA = "Llama-3.1-8B-Instruct"
YARN = "Qwen2.5 (32B or 72B) + yarn recipe"


def rotary_of(name):
    spec = specify(CONFIGS[name], name).text_stack
    layers = [*(layer for layer in spec.layers if layer.window is None), *spec.layers]
    rotary = next(layer.encoding for layer in layers if isinstance(layer.encoding, Rotary))
    return rotary, rotary.frequencies(spec.context).double()


def implementation(
    name,
    theta=lambda theta: theta,
    pos=lambda pos: pos,
    layout=None,
    gain=(1, 1),
    angle=lambda angle: angle,
    table=lambda x: x,
    sign=1,
):
    """Return an `apply` of a published model in which one part may be changed."""
    rotary, right = rotary_of(name)
    start = (rotary.dim - rotary.turned) * rotary.trailing
    layout = layout or rotary.layout or "half"

    def apply(q, k, positions):
        at = pos(positions).double()
        longest = int(positions.max()) + 1
        freqs = theta(rotary.frequencies(longest).double() if rotary.by_length else right)
        angles = angle(at[..., None] * freqs if freqs.ndim == 1 else at @ freqs)[:, None]
        cos, sin = table(angles.cos()), table(sign * angles.sin())
        return tuple(turned(x, cos, sin, g) for x, g in zip((q, k), gain, strict=True))

    def turned(x, cos, sin, times):
        stop = start + rotary.turned
        part = rotary.gain * times * x[..., start:stop]
        if layout == "half":
            a, b = part.chunk(2, -1)
            part = torch.cat([a * cos - b * sin, b * cos + a * sin], -1)
        else:
            a, b = part[..., ::2], part[..., 1::2]
            part = torch.stack([a * cos - b * sin, b * cos + a * sin], -1).flatten(-2)
        return torch.cat([x[..., :start], part, x[..., stop:]], -1)

    return apply


def names(apply, model=LLAMA, **options):
    return [finding.name for finding in against(apply, CONFIGS[model], **options).findings]


@pytest.mark.parametrize("model", CONFIGS)
def test_a_right_implementation_of_each_published_model_passes(model):
    verdict = against(implementation(model), CONFIGS[model])
    assert verdict.passed
    assert verdict.error < 1e-5


@pytest.mark.parametrize("model", CONFIGS)
def test_angles_in_float32_are_no_fault(model):
    made = implementation(model, theta=bits(torch.float32), angle=bits(torch.float32))
    verdict = against(made, CONFIGS[model])
    assert verdict.passed, verdict.findings
    assert verdict.error > 1e-5


def bits(dtype):
    return lambda x: x.to(dtype).double()


FAULTS = {
    "pairs are neighbours, expected halves": {"layout": "interleaved"},
    "the scaling is ignored": {
        "theta": lambda x: 500_000.0 ** (-torch.arange(64).double() / 64),
    },
    "base and scaling are ignored": {
        "theta": lambda x: 10_000.0 ** (-torch.arange(64).double() / 64),
    },
    "factor applied to positions and to θ": {"theta": lambda x: x / 8},
    "exponents are j/d, expected 2j/d": {"theta": lambda x: x.sqrt()},
    "θ runs from slow to fast": {"theta": lambda x: x.flip(-1)},
    "rotated twice": {"theta": lambda x: 2 * x},
    "rotated backward": {"sign": -1},
    "positions count from 1": {"pos": lambda p: p + 1},
    "positions are ignored": {"pos": lambda p: torch.arange(p.shape[1]).expand(p.shape)},
    "all texts have the positions of the first": {"pos": lambda p: p[:1].expand(p.shape)},
    "all texts have the positions of the last": {"pos": lambda p: p[-1:].expand(p.shape)},
    "only the first position of a text is used": {
        "pos": lambda p: p[:, :1] + torch.arange(p.shape[1]),
    },
    "positions are off by +1 in texts that do not begin at 0": {
        "pos": lambda p: p + (p[:, :1] > 0),
    },
    "positions in int8": {"pos": lambda p: p.to(torch.int8)},
    "positions in int16": {"pos": lambda p: p.to(torch.int16)},
    "positions in bfloat16": {"pos": bits(torch.bfloat16)},
    "θ in float16": {"theta": bits(torch.float16)},
    "angles in bfloat16": {"angle": bits(torch.bfloat16)},
    "cos and sin in bfloat16": {"table": bits(torch.bfloat16)},
    "wrong length: keys": {"gain": (1, 1.1)},
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_named(fault):
    assert names(implementation(LLAMA, **FAULTS[fault])) == [fault]


@pytest.mark.parametrize(
    ("gain", "expected"),
    [
        (1.1386294, ["gain applied twice: queries"]),
        (1 / 1.1386294, ["gain missing: queries"]),
    ],
)
def test_mscale_is_measured_on_queries_and_keys_apart(gain, expected):
    """0.1 ln 4 + 1 = 1.1386294, by hand, arXiv:2309.00071."""
    assert names(implementation(YARN, gain=(gain, 1)), YARN) == expected


def test_two_faults_at_once_are_both_named():
    made = implementation(LLAMA, layout="interleaved", pos=lambda p: p + 1)
    assert names(made) == ["pairs are neighbours, expected halves", "positions count from 1"]


def test_the_sections_of_m_rope_are_told_apart():
    model = "Qwen2.5-VL-7B-Instruct"

    def alternate(theta):
        """(axis, pair): pair j follows axis j mod 3, where the model has three runs."""
        line = theta.sum(0)
        return torch.stack([line * (torch.arange(64) % 3 == axis) for axis in range(3)])

    (found,) = names(implementation(model, theta=alternate), model)
    assert found == "pairs take turns between the axes to the end"
    swapped = implementation(model, theta=lambda theta: theta[[0, 2, 1]])
    assert names(swapped, model) == ["axes in the order 0, 2, 1"]


def test_an_ignored_delta_is_named():
    """Text behind a picture at its place in the sequence, where all axes are alike."""
    model = "Qwen2.5-VL-7B-Instruct"

    def pos(p):
        text = (p == p[..., :1]).all(-1, keepdim=True)
        return torch.where(text, torch.arange(p.shape[1])[None, :, None], p)

    assert names(implementation(model, pos=pos), model) == ["delta is ignored"]


def test_an_order_that_queries_and_keys_share_is_no_fault():
    """DeepSeek's rotation in transformers takes neighbours and returns halves."""

    def apply(q, k, positions):
        made = implementation(LLAMA, layout="interleaved")(q, k, positions)
        return [torch.cat([x[..., ::2], x[..., 1::2]], -1) for x in made]

    verdict = against(apply, CONFIGS[LLAMA], layout="interleaved")
    assert verdict.passed
    assert "order" in verdict.notes[0]


def test_a_program_that_reorders_the_weights_is_held_against_its_own_layout():
    made = implementation(LLAMA, layout="interleaved")
    assert names(made, layout="interleaved") == []
    assert names(implementation(LLAMA), layout="interleaved") == [
        "pairs are halves, expected neighbours"
    ]


def test_what_is_not_rotated_is_named():
    assert names(lambda q, k, p: (q, k)) == ["queries and keys are not rotated"]
    right = implementation(LLAMA)
    assert names(lambda q, k, p: (right(q, k, p)[0], k)) == ["keys are not rotated"]


def test_what_no_known_fault_explains_is_said_to_be_so():
    def noisy(angle):
        return angle + torch.rand(angle.shape, generator=torch.Generator().manual_seed(0))

    assert names(implementation(LLAMA, angle=noisy)) == ["none of the known faults"]
    assert names(lambda q, k, p: (q.flip(-1), k.cumsum(-1))) == ["not a rotation of pairs"]


def test_queries_that_depend_on_keys_are_named():
    apply = implementation(LLAMA)

    def crossed(q, k, positions):
        q, k = apply(q, k, positions)
        half = q.shape[-1] // 2
        k_each = k.repeat_interleave(q.shape[1] // k.shape[1], 1)
        return torch.cat([q[..., :half], k_each[..., half:]], -1), k

    assert names(crossed) == ["queries depend on keys"]


@pytest.mark.parametrize("layout", ["half", "interleaved"])
def test_tables_of_one_layout_with_channels_of_the_other_are_named(layout):
    """By the code that repositories copy: x · cos + rotate_half(x) · sin."""
    _, theta = rotary_of(LLAMA)

    def exchanged(x):
        if layout == "half":
            a, b = x.chunk(2, -1)
            return torch.cat([-b, a], -1)
        return torch.stack([-x[..., 1::2], x[..., ::2]], -1).flatten(-2)

    def apply(q, k, positions):
        angles = positions.double()[:, None, :, None] * theta
        both = angles.repeat_interleave(2, -1) if layout == "half" else angles.repeat(1, 1, 1, 2)
        return tuple(x * both.cos() + exchanged(x) * both.sin() for x in (q, k))

    (finding,) = against(apply, CONFIGS[LLAMA]).findings
    assert finding.name == "two layouts are mixed"
    words = ("halves", "neighbours") if layout == "half" else ("neighbours", "halves")
    assert re.search(f"{words[0]}.*{words[1]}", finding.sentence)


@pytest.mark.parametrize("layout", ["half", "interleaved"])
def test_a_missing_minus_is_named(layout):
    _, theta = rotary_of(LLAMA)

    def apply(q, k, positions):
        angles = positions.double()[:, None, :, None] * theta
        cos, sin = angles.cos(), angles.sin()
        made = []
        for x in (q, k):
            a, b = x.chunk(2, -1) if layout == "half" else (x[..., ::2], x[..., 1::2])
            pair = a * cos + b * sin, b * cos + a * sin
            made.append(
                torch.cat(pair, -1) if layout == "half" else torch.stack(pair, -1).flatten(-2)
            )
        return tuple(made)

    assert names(apply) == ["the minus sign is missing"]


def test_positions_may_have_their_axes_first():
    """Called with (batch, token, axis) first; transformers has (axis, batch, token)."""
    apply = implementation("Qwen2.5-VL-7B-Instruct")

    def first(q, k, positions):
        if positions.shape[0] != 3:
            raise ValueError
        return apply(q, k, positions.permute(1, 2, 0))

    assert names(first, "Qwen2.5-VL-7B-Instruct") == names(apply, "Qwen2.5-VL-7B-Instruct") == []


def test_a_fault_of_queries_alone_is_said_to_be_theirs():
    right, wrong = implementation(LLAMA), implementation(LLAMA, pos=lambda pos: pos + 1)

    def apply(q, k, positions):
        return wrong(q, k, positions)[0], right(q, k, positions)[1]

    (finding,) = against(apply, CONFIGS[LLAMA]).findings
    assert finding.name == "positions count from 1"
    assert finding.sentence.endswith("Only queries have this fault.")
    (both,) = against(wrong, CONFIGS[LLAMA]).findings
    assert "Only" not in both.sentence


def test_an_ignored_attention_factor_is_named():
    """YaRN's own gain, 0.1 ln(factor) + 1, where the config has another."""
    config = CONFIGS[YARN]
    scaling = config["rope_scaling"] | {"attention_factor": 1.0}
    found = against(implementation(YARN), config | {"rope_scaling": scaling}).findings
    assert [fault.name for fault in found] == [
        "gain of the config ignored: queries",
        "gain of the config ignored: keys",
    ]


def test_arrays_of_numpy_are_accepted():
    right = implementation(LLAMA)
    assert not names(lambda q, k, p: tuple(np.asarray(x) for x in right(q, k, p)))


def test_other_shapes_and_configs_without_a_rotation_are_refused():
    with refused(ValueError, "`apply`", "(3,"):
        names(lambda q, k, p: (q, k[:, :, :1]))
    with refused(ValueError, "`apply`", "ZeroDivisionError"):
        names(lambda q, k, p: 1 / 0)
    with refused(ValueError, "`config`", "RoPE"):
        against(lambda q, k, p: (q, k), {"model_type": "gpt2"})
    with refused(ValueError, "`layer`", "99"):
        names(lambda q, k, p: (q, k), layer=99)


def test_a_table_that_refuses_positions_beyond_the_context_is_no_fault():
    def refusing(q, k, positions):
        if int(positions.max()) >= 131_072:
            raise IndexError("no such row")
        return implementation(LLAMA)(q, k, positions)

    verdict = against(refusing, CONFIGS[LLAMA])
    assert verdict.passed
    assert "131,072" in verdict.notes[0]


@pytest.mark.parametrize(
    ("pos", "name"),
    [
        (lambda p: p.clamp(max=131_071), "positions end at the context"),
        (lambda p: p % 131_072, "positions begin again at the context"),
    ],
)
def test_other_positions_beyond_the_context_are_a_note(pos, name):
    """The config has 131,072 tokens, and states nothing about positions beyond them."""
    verdict = against(implementation(LLAMA, pos=pos), CONFIGS[LLAMA])
    assert verdict.passed
    (note,) = verdict.notes
    assert name in note
    assert "131,072" in note
    (found,) = against(implementation(LLAMA, pos=pos), CONFIGS[LLAMA], length=262_144).findings
    assert found.name == name


DYNAMIC = {
    "model_type": "llama",
    "hidden_size": 64,
    "num_attention_heads": 1,
    "num_hidden_layers": 1,
    "max_position_embeddings": 2048,
    "rope_theta": 10_000.0,
    "rope_scaling": {"rope_type": "dynamic", "factor": 2.0},
}


class Dynamic:
    """Dynamic NTK by hand; `kept` keeps the base of the longest text so far."""

    def __init__(self, kept=False, least=2048):
        self.kept, self.longest, self.least = kept, least, least

    def __call__(self, q, k, positions):
        longest = max(int(positions.max()) + 1, self.least)
        self.longest = max(longest, self.longest)
        tokens = self.longest if self.kept else longest
        base = 10_000.0 * (2 * tokens / 2048 - 1) ** (64 / 62)
        angle = positions[:, None, :, None] * base ** (-torch.arange(32).double() / 32)

        def turned(x):
            a, b = x.double().chunk(2, -1)
            cos, sin = angle.cos(), angle.sin()
            return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)

        return turned(q), turned(k)


def test_a_base_that_grows_with_the_text_is_tested_at_two_lengths():
    """Short, long and short again: a base must neither stay nor be that of the longest text."""
    assert against(Dynamic(), DYNAMIC).passed
    (found,) = against(Dynamic(kept=True), DYNAMIC).findings
    assert found.name == "θ of an earlier, longer text is kept"
    assert "2,048" in found.sentence
    assert "4,096" in found.sentence
    (found,) = against(Dynamic(least=4096), DYNAMIC).findings
    assert found.name == "θ of the longest text is used"
    assert against(Dynamic(kept=True), DYNAMIC, length=4096).passed


PHI = "Phi-3.5-mini-instruct"


def longrope(long):
    """Return LongRoPE by hand, whose long factors are used if `long(tokens)`."""
    scaling, size = CONFIGS[PHI]["rope_scaling"], 4096
    gain = math.sqrt(1 + math.log(131_072 / size) / math.log(size))

    def apply(q, k, positions):
        kind = "long_factor" if long(int(positions.max()) + 1) else "short_factor"
        theta = 1e4 ** (-torch.arange(48).double() / 48) / torch.tensor(scaling[kind])
        turn = gain * torch.polar(torch.ones(1).double(), positions[:, None, :, None] * theta)

        def turned(x):
            z = torch.complex(*x.double().chunk(2, -1)) * turn
            return torch.cat([z.real, z.imag], -1)

        return turned(q), turned(k)

    return apply


@pytest.mark.parametrize(
    ("long", "names"),
    [
        (lambda tokens: tokens > 4096, []),
        (lambda tokens: True, ["long factors are used for a short text"]),
        (lambda tokens: False, ["short factors are used for a long text"]),
        (lambda tokens: tokens <= 4096, ["short and long factors are exchanged"]),
    ],
)
def test_the_factors_of_longrope_are_tested_at_two_lengths(long, names):
    assert [fault.name for fault in against(longrope(long), CONFIGS[PHI]).findings] == names


def llama3(factor=8.0, low=1.0, high=4.0, trained=8192, base=500_000.0):
    """θ of Llama 3.1 by its formula, pair by pair; the config has these defaults."""
    found = []
    for pair in range(64):
        theta = base ** (-pair / 64)
        turns = trained * theta / (2 * math.pi)
        kept = min(max((turns - low) / (high - low), 0.0), 1.0)
        found.append(kept * theta + (1 - kept) * theta / factor)
    return torch.tensor(found).double()


@pytest.mark.parametrize(
    ("settings", "name", "expected"),
    [
        ({"factor": 32.0}, "the factor is 32", "8, llama3"),
        ({"factor": 3.8147}, "the factor is 3.8147", "8, llama3"),
        ({"trained": 4096}, "the trained length is 4,096", "8,192"),
        ({"base": 1e6}, "the base is 1,000,000", "500,000"),
    ],
)
def test_one_other_setting_of_a_scaling_is_named(settings, name, expected):
    made = implementation(LLAMA, theta=lambda right: llama3(**settings))
    (found,) = against(made, CONFIGS[LLAMA]).findings
    assert found.name == name
    assert expected in found.sentence
    assert not names(implementation(LLAMA, theta=lambda right: llama3()))


def test_usual_ends_of_a_ramp_are_named_if_the_config_has_others():
    config = CONFIGS[LLAMA] | {"rope_scaling": CONFIGS[LLAMA]["rope_scaling"] | {
        "low_freq_factor": 2.0, "high_freq_factor": 16.0,
    }}  # fmt: skip
    made = implementation(LLAMA, theta=lambda right: llama3())
    (found,) = against(made, config).findings
    assert found.name == "the ends of the ramp are 1 and 4 turns"
    assert "2 and 16" in found.sentence


def test_theta_of_another_layer_is_named_with_that_layer():
    """ModernBERT: base 160,000 in layer 0, and 10,000 in layers with a window."""
    config = {
        "model_type": "modernbert",
        "hidden_size": 128,
        "num_attention_heads": 2,
        "num_hidden_layers": 4,
        "max_position_embeddings": 8192,
        "global_rope_theta": 160_000.0,
        "local_rope_theta": 10_000.0,
        "global_attn_every_n_layers": 3,
        "local_attention": 128,
    }

    def local(q, k, positions):
        turn = torch.polar(
            torch.ones(1).double(),
            positions[:, None, :, None] * 1e4 ** (-torch.arange(32).double() / 32),
        )
        made = [torch.complex(*x.double().chunk(2, -1)) * turn for x in (q, k)]
        return [torch.cat([z.real, z.imag], -1) for z in made]

    (found,) = against(local, config).findings
    assert found.name == "θ of the other layers"
    assert "Layer 1" in found.sentence
    assert against(local, config, layer=1).passed


def test_a_second_rounding_needs_half_the_error_to_be_named():
    """Positions in float16, and angles in float32: cos and sin in float16 explain as much."""
    model = "phi-1"
    single = bits(torch.float32)
    made = implementation(model, pos=bits(torch.float16), theta=single, angle=single)
    assert names(made, model, length=32_768) == ["positions in float16"]


def gemma_4(pairs):
    """Return the rotation of a global layer of Gemma 4: 64 of 256 pairs turn, base 10⁶."""

    def apply(q, k, positions):
        angles = positions[..., None] * 1e6 ** (-2 * torch.arange(64).double() / 512)
        cos, sin = angles.cos()[:, None], angles.sin()[:, None]

        def turned(x):
            out, far = x.clone().double(), slice(pairs, pairs + 64)
            out[..., :64] = x[..., :64] * cos - x[..., far] * sin
            out[..., far] = x[..., far] * cos + x[..., :64] * sin
            return out

        return turned(q), turned(k)

    return apply


def test_the_layer_that_is_meant_may_have_wider_heads_than_the_first():
    """Gemma 4 has heads of 512 channels where it sees all tokens, and of 256 elsewhere."""
    found = Path(__file__).parents[2] / "data/published_files.json"
    config = json.loads(found.read_text("utf-8"))["gemma-4-31b"]["config"]
    assert against(gemma_4(256), config).passed
    (name, _), *others = against(gemma_4(64), config).findings
    assert name == "pairs lie within the first 128 channels"
    assert not others


def slower_from(pair):
    return lambda theta: torch.where(torch.arange(64) < pair, theta, 0.9 * theta)


@pytest.mark.parametrize(
    ("part", "name", "sentence"),
    [
        ({"theta": lambda x: 0.3 * x}, "θ is 0.3 times that of the config", ""),
        (
            {"theta": lambda x: 77_000.0 ** (-torch.arange(64).double() / 64)},
            "the base is 77,000",
            "500,000, llama3",
        ),
        (
            {"theta": lambda x: torch.where(x == x[20], 1.0001 * x, x)},
            "θ of the kept pairs is wrong",
            "Pair 20: 1.0001",
        ),
        (
            {"theta": lambda x: x * torch.linspace(0.5, 0.9, 64).double()},
            "θ of 64 of 64 pairs is wrong",
            "0.5 to 0.9",
        ),
        ({"theta": slower_from(50)}, "θ of the slowed pairs is wrong", "Pairs 50 to 63"),
        ({"theta": slower_from(29)}, "θ of the ramp and the slowed pairs is wrong", "0.9"),
        ({"pos": lambda p: p + 3}, "positions are off by +3", "Position 0 is taken for 3."),
        (
            {"pos": lambda p: p + 2 * (p[:, :1] > 0)},
            "positions are off by +2 in texts that do not begin at 0",
            "",
        ),
        (
            {"pos": lambda p: p + 5 * (torch.arange(len(p)) == 2)[:, None]},
            "positions are off by +5 in 1 of 3 texts, number 3",
            "",
        ),
        ({"pos": lambda p: p.clamp(max=4095)}, "positions end at 4,096", "4,095"),
        (
            {"pos": lambda p: p % 4096},
            "positions begin again at 4,096",
            "Position 65,536 is taken for 0.",
        ),
    ],
)
def test_other_frequencies_and_positions_are_measured(part, name, sentence):
    """Faults that are in no list. Llama 3.1 keeps pairs 0 to 28 and slows pairs from 35 on."""
    (found,) = against(implementation(LLAMA, **part), CONFIGS[LLAMA]).findings
    assert found.name == name
    assert sentence in found.sentence


def test_other_axes_are_measured():
    """8, 28 and 28 pairs, where the model has 16, 24 and 24."""
    model = "Qwen2.5-VL-7B-Instruct"

    def moved(theta):
        line, axis = theta.sum(0), torch.tensor([0] * 8 + [1] * 28 + [2] * 28)
        return torch.stack([line * (axis == n) for n in range(3)])

    (found,) = against(implementation(model, theta=moved), CONFIGS[model]).findings
    assert found.name == "pairs follow other axes"
    assert "[8, 28, 28], expected [16, 24, 24]" in found.sentence


def test_angles_too_large_for_float16_are_named():
    """Positions from 65,520 on are infinite in float16, and their cosine is NaN."""
    half = bits(torch.float16)
    made = implementation(LLAMA, pos=half, theta=half, angle=half)
    assert names(made) == ["positions, θ and angles in float16"]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_all_parts_in_16_bits_are_one_fault(dtype):
    half = bits(dtype)
    made = implementation("phi-1", pos=half, theta=half, angle=half, table=half)
    name = str(dtype).removeprefix("torch.")
    assert names(made, "phi-1") == [f"positions, θ, angles, cos and sin in {name}"]
