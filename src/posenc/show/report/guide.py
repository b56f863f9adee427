"""Which encoding to take: the one table behind README, `posenc list --by use` and the pages.

Each row has an answer, who does it, what was measured here, and what is not known. Names of models
are those of `posenc.models.published`, or stand in the cards; numbers are those of the stores in
`studies`; tests hold both.
"""

from collections.abc import Mapping
from dataclasses import astuple, dataclass

from posenc.core.notebook import table

HEADS = "you have", "take", "who does it", "measured here", "not known"
# Of studies/fair-text: bits a character at L; at 2 L, reading all, and cropped to the last L.
READ: Mapping[str, tuple[float, float, float]] = {
    "RoPE": (1.913, 4.512, 1.895),
    "NoPE": (2.078, 3.870, 2.095),
    "ALiBi": (2.054, 3.343, 2.075),
    "FIRE": (1.913, 2.143, 1.898),
    "T5": (1.894, 1.916, 1.863),
    "KERPLE": (1.910, 1.901, 1.896),
    "FoX": (1.908, 1.893, 1.893),
}
WINDOWED = 1.901  # RoPE at 2 L, through a window of L
ALIBI = (2.611, 2.591)  # of studies/shape-text, four heads: bits at 2 L, reading all and cropped
# Least margins in bits, over L…2L, within which rows are equal to the cropped RoPE (TOST, 5 %).
EQUAL: Mapping[str, float] = {"KERPLE": 0.012, "FoX": 0.013}
# Of studies/shape-copy, where words may repeat: % copied at 1.2 and 1.4 times the trained length.
COPIED: Mapping[str, tuple[int, int]] = {
    "NoPE": (56, 4),
    "ALiBi": (27, 0),
    "T5": (14, 1),
    "RoPE": (0, 0),
    "Sinusoidal": (0, 0),
}
# Of studies/masked, whose models are encoders: bits a hidden word at n ≤ L.
HIDDEN: Mapping[str, float] = {"RoPE": 6.186, "NoPE": 7.730, "Learned": 7.760}
TWICE = (2.368, 2.371)  # of docs/extend_cases.md: a Llama trained on 128, all 128 and the last 64
# Pairs of Llama 3's RoPE, of 64, that meet new angles at 131,072 tokens after 8,192 in training.
NEW_ANGLES: Mapping[str, int] = {"as trained": 29, "NTK": 28, "PI": 0, "YaRN": 0}

_AT_L = ", ".join(f"{name} {bits:.3f}" for name, (bits, _, _) in READ.items())
_READ = ", ".join(f"{name} {on:.3f} and {cut:.3f}" for name, (_, on, cut) in READ.items())
_COPIED = ", ".join(f"{name} {near} and {far} %" for name, (near, far) in COPIED.items())
_HIDDEN = ", ".join(f"{name} {bits:.3f}" for name, bits in HIDDEN.items())
_EQUAL = " and ".join(f"{name} within {margin:.3f}" for name, margin in EQUAL.items())
_ANGLES = ", ".join(f"{name} {count}" for name, count in NEW_ANGLES.items())


@dataclass(frozen=True)
class Use:
    use: str  # what somebody has
    answer: str
    does: str  # who does it
    measured: str  # here
    unknown: str


class Guide(tuple[Use, ...]):
    """The rows of the table, which shows itself in a notebook."""

    def __repr__(self) -> str:
        return "\n".join(f"{row.use}: {row.answer}" for row in self)

    def _repr_html_(self) -> str:
        rows = [[part.replace("*", "").replace("`", "") for part in astuple(row)] for row in self]
        return table(HEADS, rows, "Which encoding to take")


def guide() -> Guide:
    """Which encoding to take: a row for each use, as `posenc list --by use` prints them."""
    return Guide(GUIDE)


GUIDE = (
    Use(
        "a decoder that reads what it was trained on",
        "RoPE",
        "Llama 3.1, Qwen3, phi-4 and most others in all layers",
        "Its scores go by the distance alone, and it has no last position: *shift invariant* and"
        " *any length* in the table of properties. At n = L the tiny models of the next row need"
        f" these bits a character: {_AT_L}; no plan ranks them.",
        "Which learns best at scale: the models trained here are tiny.",
    ),
    Use(
        "… for long texts, to be trained",
        "RoPE through windows; a large base, p-RoPE or NoPE in the layers that see all",
        "a large base: Gemma 3; p-RoPE: Gemma 4; NoPE: Llama 4, EXAONE 4, and without windows"
        " SmolLM3",
        "Tiny models (L = 64 characters, learning rate 0.004, the largest of the three tried, for"
        " every row, 5,000 steps, 8 seeds) with RoPE, read through a window of L, need"
        f" {WINDOWED:.3f} bits a character at 2 L; reading all, {READ['RoPE'][1]:.3f}, and cropped"
        f" to the last L, {READ['RoPE'][2]:.3f}. They were trained on L characters, where such a"
        " window hides nothing.",
        "What windows or such a mixture do when they are trained on long texts: no study has it.",
    ),
    Use(
        "… that is trained already, with RoPE, for longer texts",
        "YaRN: `posenc extend`; see `posenc inspect`",
        "DeepSeek-V3, Kimi-K2, gpt-oss, Olmo-3.1; a way of its own: Llama 3.1, Phi-3.5",
        "Pairs of 64 of Llama 3's RoPE that meet new angles at 131,072 tokens after 8,192 in"
        f" training: {_ANGLES}. But PI sets all neighbours 16 times closer, YaRN the slow pairs."
        " And of four small models that were trained without such a way none reads twice to eight"
        " times as far, by any, with 0.01 bits fewer than from its last tokens alone. Nor does"
        " training on longer texts show more there: a model trained on 128 letters needs"
        f" {TWICE[0]} bits of 128 letters and {TWICE[1]} of the last 64.",
        "Whether your model understands so long a text: `posenc extend --prove` tries, or train on"
        " some.",
    ),
    Use(
        "… that must read beyond its training, with no more of it",
        "RoPE, shown the last L tokens; or KERPLE, FoX",
        "windows in half of the layers or more: Gemma-3, gpt-oss, Olmo-3.1",
        "Tiny models (those of the row for long texts) need these bits at 2 L, reading all and"
        f" cropped to the last L: {_READ}. ALiBi has two heads there; with four, rate 0.001 and"
        f" 1,500 steps it needs {ALIBI[0]:.3f} and {ALIBI[1]:.3f}. These models use only the last 6"
        " to 10 letters even within L, so no encoding could have gained from more. Reading on, two"
        f" rows equal the cropped RoPE (from L to 2 L, {_EQUAL} bits; asked afterwards). Trained to"
        " copy L = 10 words, which may repeat (learning rate 0.001, 2,000 steps, 6 seeds), these"
        f" copied at 1.2 L and 1.4 L: {_COPIED}; those seeds decide none of that study's contrasts."
        " Where no word repeats, with four times the batch and rate, RoPE copies longer texts in a"
        " pilot of one seed (studies/use-of-length).",
        "Whether large models do as these, or these at other lengths, steps and larger rates.",
    ),
    Use(
        "an encoder of bounded length",
        "RoPE, or Learned up to the length of its table",
        "RoPE: ModernBERT; Learned: BERT, ViT; DeBERTa has vectors of its own for distances",
        "A table ends at its length: *any length* in the table of properties. Tiny encoders that"
        " fill in hidden words of a novel (L = 32 words, a learning rate chosen for each, 3,000"
        f" steps, 8 seeds) need these bits a hidden word at n ≤ L: {_HIDDEN}. After these steps"
        " rows tell them no more than none do, so Learned is named by custom, not by evidence.",
        "Which learns best where rows are trained for longer.",
    ),
    Use(
        "pictures, video",
        "RoPE of several axes: Axial RoPE, M-RoPE",
        "Axial RoPE: EVA-02, Pixtral; M-RoPE: Qwen2.5-VL",
        "*several axes* in the table of properties; RoPE-Mixed, LieRE and STRING have it too.",
        "Which of them sees best: no study here is trained on pictures.",
    ),
    Use(
        "a text whose tokens should say how far apart they are",
        "FoX, CoPE, PaTH, Wall, Selective RoPE",
        "none of the models whose configs are packaged",
        f"Of these FoX alone is in a study here: at 2 L it needs {READ['FoX'][1]:.3f} bits"
        f" reading all, and {READ['FoX'][2]:.3f} cropped to L: it has learned a window.",
        "Whether it pays in large models; of the other four nothing is measured here.",
    ),
)


def markdown() -> str:
    """The table of README.md."""
    rows = [HEADS, ("---",) * len(HEADS), *map(astuple, GUIDE)]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)
