"""Faulty and corrected rotations, written anew in the manner of the engines of public threads.

Nothing here is copied, and nothing of posenc is used. Each function is one engine: `fixed` selects
the corrected form. `CASES` gives the thread, the published config, and patterns that one finding
has to contain, all of them, for the fault to count as named.
"""

import json
import math
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from published import published
from torch import Tensor

DATA = Path(__file__).parents[2] / "data"
FILES = json.loads((DATA / "published_files.json").read_text("utf-8"))
FILES["Intern-S1-Pro"] = json.loads((DATA / "intern_s1_pro.json").read_text("utf-8"))


@dataclass(frozen=True)
class Case:
    """One thread: the function of its engine, the config, and the patterns of the fault's name."""

    engine: object
    url: str
    config: dict
    words: tuple[str, ...]
    layer: int | None = None
    length: int | None = None

    @property
    def faulty(self):
        return partial(self.engine, fixed=False)

    @property
    def fixed(self):
        return partial(self.engine, fixed=True)


CASES: dict[str, Case] = {}


def thread(url, config, *words, layer=None, length=None):
    """Register the function below as the engine of the thread at `url`."""
    found = FILES[config]["config"] if config in FILES else published(config)

    def register(engine):
        address = f"https://github.com/{url}"
        CASES[engine.__name__] = Case(engine, address, found, words, layer, length)
        return engine

    return register


# The parts that the engines share: two ways to turn a pair, and the plain ladder of frequencies.


def ladder(base, dim):
    return 1.0 / base ** (torch.arange(0, dim, 2, dtype=torch.float32) / dim)


def rotate_half(x: Tensor) -> Tensor:
    first, second = x.chunk(2, -1)
    return torch.cat((-second, first), -1)


def neox(x: Tensor, angle: Tensor, gain: float = 1.0) -> Tensor:
    """Turn x (batch, head, token, channel) by angle (batch, token, pair): pairs are halves."""
    both = torch.cat((angle, angle), -1).unsqueeze(1)
    return x * both.cos() * gain + rotate_half(x) * both.sin() * gain


def polar(x: Tensor, angle: Tensor) -> Tensor:
    """Turn x by angle as complex numbers: pairs are neighbours."""
    numbers = torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2))
    units = torch.polar(torch.ones_like(angle), angle).unsqueeze(1)
    return torch.view_as_real(numbers * units).flatten(-2)


def both(turn, q, k, *rest):
    return turn(q, *rest), turn(k, *rest)


def line(positions: Tensor) -> Tensor:
    """Positions (batch, token) in float32, of the first axis where there are several."""
    return (positions if positions.ndim == 2 else positions[..., 0]).float()


def yarn(base, dim, factor, original, kept_base=None, whole=True, fast=32.0, slow=1.0):
    """θ of YaRN. Pairs below `low` are kept, pairs above `high` are slowed by `factor`."""

    def pair(turns):
        return dim * math.log(original / (turns * 2 * math.pi)) / (2 * math.log(base))

    low, high = pair(fast), pair(slow)
    if whole:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, dim - 1)
    ramp = ((torch.arange(dim // 2) - low) / (high - low)).clamp(0, 1)
    return ladder(kept_base or base, dim) * (1 - ramp) + ladder(base, dim) / factor * ramp


# Meta's own checkpoints pair neighbours. The converted ones, of which this is the config, pair
# halves, and the library's flag has to follow.
@thread("Dao-AILab/flash-attention/issues/288", "Llama-2-7b", "neighbour|interleave|adjacent")
def interleaved_flag(q, k, positions, *, fixed):
    angle = positions.float()[..., None] * ladder(10_000.0, 128)
    return both(neox if fixed else polar, q, k, angle)


# The config's attention_factor is the final gain. The engine multiplied its own gain by it.
@thread(
    "sgl-project/sglang/pull/33558",
    "Olmo-3-1025-7B",
    "gain|mscale|attention.factor|amplitude",
    "twice|squared",
    layer=3,
)
def gain_of_gain(q, k, positions, *, fixed):
    own = 0.1 * math.log(8.0) + 1
    gain = 1.2079441541679836 if fixed else own * 1.2079441541679836
    angle = positions.float()[..., None] * yarn(500_000.0, 128, 8.0, 8192)
    return both(neox, q, k, angle, gain)


# inv_freq and positions were cast to the model's bfloat16 before their product.
@thread("huggingface/candle/pull/3520", "Qwen2.5-7B-Instruct", "bfloat16|bf16", "angle|position")
def tables_in_bfloat16(q, k, positions, *, fixed):
    kind = torch.float32 if fixed else torch.bfloat16
    angle = positions.to(kind)[..., None] * ladder(1_000_000.0, 128).to(kind)
    cos, sin = (torch.cat((table, table), -1)[:, None] for table in (angle.cos(), angle.sin()))
    cos, sin = cos.to(q.dtype), sin.to(q.dtype)
    return q * cos + rotate_half(q) * sin, k * cos + rotate_half(k) * sin


# The buffer inv_freq became half with the model, and the whole table after it.
@thread("EleutherAI/gpt-neox/issues/1003", "pythia-1.4b", "float16|half|fp16")
def buffer_in_half(q, k, positions, *, fixed):
    inv_freq = ladder(10_000.0, 32)
    if not fixed:
        inv_freq = inv_freq.half()
    time = torch.arange(int(positions.max()) + 1).type_as(inv_freq)
    table = torch.outer(time, inv_freq)
    cos, sin = table.cos().float()[positions][:, None], table.sin().float()[positions][:, None]

    def turn(x):
        a, b, rest = x[..., :16], x[..., 16:32], x[..., 32:]
        return torch.cat((a * cos - b * sin, b * cos + a * sin, rest), -1)

    return turn(q), turn(k)


# A cast of the whole model rounded the stored frequencies. Angles are formed in float32 later.
@thread(
    "NVIDIA-NeMo/Automodel/pull/2549", "Llama-3.2-1B", "bfloat16|bf16", "θ|inv_freq|frequenc|theta"
)
def frequencies_rounded(q, k, positions, *, fixed):
    inv_freq = ladder(500_000.0, 64)
    length = 2 * math.pi / inv_freq
    blend = ((8192 / length - 1) / (4 - 1)).clamp(0, 1)
    inv_freq = inv_freq * (blend + (1 - blend) / 32)
    if not fixed:
        inv_freq = inv_freq.bfloat16().float()
    return both(neox, q, k, positions.float()[..., None] * inv_freq)


def by_axis(positions: Tensor, inv_freq: Tensor, axes: list[int]) -> Tensor:
    """The angle (batch, token, pair), where pair j reads the position on the axis axes[j]."""
    if positions.ndim == 2:
        positions = positions[..., None].expand(-1, -1, 3)
    return positions[..., axes].float() * inv_freq


TURNS = [(j % 3) if j < 60 else 0 for j in range(64)]  # [24, 20, 20], taken in turns


# A plain rotation counts the tokens, where patches of a picture have ids (t, h, w).
@thread(
    "ml-explore/mlx-lm/pull/1768",
    "Qwen3-VL-8B-Instruct",
    "position|ids|axes|axis",
    "ignore|index|count|not read|one axis|first axis",
)
def patches_are_counted(q, k, positions, *, fixed):
    inv_freq = ladder(5_000_000.0, 128)
    if fixed:
        angle = by_axis(positions, inv_freq, TURNS)
    else:
        angle = (torch.arange(q.shape[2]).float()[:, None] * inv_freq).expand(len(q), -1, -1)
    return both(neox, q, k, angle)


# Steps of three over all pairs: the sections become 22, 21 and 21, where 24, 20, 20 are declared.
@thread(
    "XPU-Forces/mojo_opset/pull/276",
    "Qwen3-VL-8B-Instruct",
    "section|axis|axes",
)
def stride_without_end(q, k, positions, *, fixed):
    axes = TURNS if fixed else [j % 3 for j in range(64)]
    return both(neox, q, k, by_axis(positions, ladder(5_000_000.0, 128), axes))


# The sections were taken as blocks, although `mrope_interleaved` is true.
@thread(
    "vllm-project/vllm-gaudi/pull/1437",
    "Qwen3-VL-8B-Instruct",
    "section|axis|axes",
    "contiguous|block|one after|in a row|consecutive|chunk|turns|interleave",
)
def sections_in_blocks(q, k, positions, *, fixed):
    axes = TURNS if fixed else [0] * 24 + [1] * 20 + [2] * 20
    return both(neox, q, k, by_axis(positions, ladder(5_000_000.0, 128), axes))


# The base of Llama 3 was not read, and stayed that of Llama 2.
@thread("marin-community/levanter/pull/649", "Meta-Llama-3-8B", "base", "10,?000")
def base_not_read(q, k, positions, *, fixed):
    angle = positions.float()[..., None] * ladder(500_000.0 if fixed else 10_000.0, 128)
    return both(neox, q, k, angle)


# The middle band runs from the slowed end to the kept one: periods are mixed, and the ramp is
# turned round.
@thread(
    "ml-explore/mlx-examples/pull/907",
    "Llama-3.1-8B",
    "ramp|blend|band|middle|between|low|llama3",
)
def ramp_turned_round(q, k, positions, *, fixed):
    periods = []
    for j in range(64):
        period = 500_000.0 ** (2 * j / 128)
        wave = 2 * math.pi * period
        if wave > 8192:
            period *= 8
        elif wave >= 2048:
            if fixed:
                share = (8192 / wave - 1) / (4 - 1)
                period /= (1 - share) / 8 + share
            else:
                share = (wave - 2048) / (8192 - 2048)
                period *= (1 - share) * 8 + share
        periods.append(period)
    return both(neox, q, k, positions.float()[..., None] / torch.tensor(periods))


# `truncate` is false in the config, and the engine rounded the ends of the ramp.
@thread("vllm-project/vllm/pull/28244", "gpt-oss-20b", "truncat|round", layer=1)
def ends_are_rounded(q, k, positions, *, fixed):
    inv_freq = yarn(150_000.0, 64, 32.0, 4096, whole=not fixed)
    angle = positions.float()[..., None] * inv_freq
    return both(neox, q, k, angle, 0.1 * math.log(32) + 1)


# The recipe had the extended length where the original one belongs.
@thread("NVIDIA-NeMo/Speech/issues/14686", "gpt-oss-20b", "original|131,?072", layer=1)
def extended_for_original(q, k, positions, *, fixed):
    inv_freq = yarn(150_000.0, 64, 32.0, 4096 if fixed else 131_072, whole=False)
    angle = positions.float()[..., None] * inv_freq
    return both(neox, q, k, angle, 0.1 * math.log(32) + 1)


# One list of positions served a padded batch in which each text needs its own.
@thread(
    "unslothai/unsloth/pull/3795", "Qwen2.5-7B-Instruct", "first", "batch|row|text|sequence|prompt"
)
def positions_of_the_first(q, k, positions, *, fixed):
    rows = positions if fixed else positions[:1]
    angle = rows.float()[..., None] * ladder(1_000_000.0, 128)
    return both(neox, q, k, angle)


# The table had 4,096 rows for 40,960 positions, and nobody checked its end. Positions beyond it get
# the last row here, as on a machine that clamps an index. The corrected engine refuses positions
# that the config does not allow.
@thread(
    "pegainfer-project/pegainfer/issues/220",
    "Qwen3-8B",
    "table|cache|clamp|stop|end|stay|from position|beyond",
    "4,?09[56]",
)
def table_ends(q, k, positions, *, fixed):
    rows = 40_960 if fixed else 4096
    table = torch.outer(torch.arange(rows).float(), ladder(1_000_000.0, 128))
    return both(neox, q, k, table[positions if fixed else positions.clamp(max=rows - 1)])


# Frequencies and the distance of a pair were those of the head's 256 channels, not of the 64 that
# are turned.
@thread(
    "pie-project/pie/pull/603",
    "Qwen3-Next-80B-A3B-Instruct",
    "exponent|θ",
    "channels of a head|head_dim|256",
)
def head_width_for_rotary_width(q, k, positions, *, fixed):
    width = 64 if fixed else 256
    inv_freq = 10_000_000.0 ** -(torch.arange(32) * 2.0 / width)
    angle = (line(positions)[..., None] * inv_freq)[:, None]

    def turn(x):
        out, far = x.clone(), slice(width // 2, width // 2 + 32)
        out[..., :32] = x[..., :32] * angle.cos() - x[..., far] * angle.sin()
        out[..., far] = x[..., far] * angle.cos() + x[..., :32] * angle.sin()
        return out

    return turn(q), turn(k)


# The half that is to pass unturned was turned, too.
@thread(
    "ml-explore/mlx-lm/pull/1698",
    "GLM-4-9B-0414",
    "all|whole|every|128",
    "channel|dimension|rotat|turn",
)
def whole_head(q, k, positions, *, fixed):
    dims = 64 if fixed else 128
    angle = positions.float()[..., None] * ladder(10_000.0, dims)

    def turn(x):
        return torch.cat((polar(x[..., :dims], angle), x[..., dims:]), -1)

    return turn(q), turn(k)


PHI = published("Phi-3.5-mini-instruct")["rope_scaling"]


# The factors were chosen by the room that is allocated, not by the length of the text.
@thread("ggml-org/llama.cpp/issues/24823", "Phi-3.5-mini-instruct", "short", "long", length=4096)
def factors_by_room(q, k, positions, *, fixed):
    tokens = 4096 if fixed else 131_072
    factors = torch.tensor(PHI["long_factor" if tokens > 4096 else "short_factor"])
    gain = math.sqrt(1 + math.log(131_072 / 4096) / math.log(4096))
    angle = positions.float()[..., None] * ladder(10_000.0, 96) / factors
    return both(neox, q, k, angle, gain)


# A layer with a window got the local base, and beside it the factor of the global layers.
@thread(
    "vllm-project/vllm/pull/29111",
    "Gemma-3-12b-it (text)",
    "factor|linear|slow|global|scal",
    layer=0,
)
def window_is_stretched(q, k, positions, *, fixed):
    inv_freq = ladder(10_000.0, 256) / (1.0 if fixed else 8.0)
    return both(neox, q, k, positions.float()[..., None] * inv_freq)


# The flag "forward" of the operator was passed inverted, so it undid a rotation.
@thread(
    "ngxson/llama.cpp/pull/59",
    "Llama-2-7b",
    "sign|backward|direction|inverse|opposite|wrong way|−",
)
def forward_is_inverted(q, k, positions, *, fixed):
    angle = positions.float()[..., None] * ladder(10_000.0, 128)
    return both(neox, q, k, angle if fixed else -angle)


# The kept pairs of YaRN had the base that the NTK rule raises, not the model's.
@thread(
    "paiml/aprender/pull/2161",
    "Qwen2.5-7B-Instruct, with its recipe",
    "base|ntk",
)
def kept_by_a_raised_base(q, k, positions, *, fixed):
    raised = None if fixed else 1_000_000.0 * 4.0 ** (128 / 126)
    inv_freq = yarn(1_000_000.0, 128, 4.0, 32_768, kept_base=raised)
    return both(neox, q, k, positions.float()[..., None] * inv_freq, 0.1 * math.log(4) + 1)


def fope(q, k, positions, pads):
    """FoPE with unit matrices: 45 of 64 pairs have a wave, the others (cos, sin) = `pads`."""
    inv_freq = ladder(5_000_000.0, 128)
    inv_freq = inv_freq[inv_freq > 2 * math.pi / 262_144]
    angle = positions.float()[..., None] * inv_freq
    cos, sin = (
        torch.nn.functional.pad(table, (0, 64 - len(inv_freq)), value=pad)
        for table, pad in zip((angle.cos(), angle.sin()), pads, strict=True)
    )
    cos, sin = (torch.cat((table, table), -1)[:, None] for table in (cos, sin))
    return q * cos + rotate_half(q) * sin, k * cos + rotate_half(k) * sin


# The authors of FoPE and the code of this model pad sin with 1. The change pads with 0, as the
# mathematics of a pair at rest suggests, so that scores are other than in training.
@thread(
    "vllm-project/vllm/pull/55243",
    "Intern-S1-Pro",
    "pad|pairs that stand still|unturned|without",
    "sin",
    "0",
)
def fope_sin_is_zero(q, k, positions, *, fixed):
    return fope(q, k, positions, (1.0, 1.0 if fixed else 0.0))


# The question why sin is padded with 1 rather than 0. Padded with 0 in both tables, as a port has
# it, a third of the channels vanishes.
@thread(
    "TsinghuaC3I/Fourier-Position-Embedding/issues/6",
    "Intern-S1-Pro",
    "pad|pairs that stand still|unturned|vanish",
    "cos|0",
)
def fope_pads_are_zero(q, k, positions, *, fixed):
    return fope(q, k, positions, (1.0, 1.0) if fixed else (0.0, 0.0))
