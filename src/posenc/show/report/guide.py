"""The guide to choosing an encoding, as shown in the README, the docs and the command line.

Each row has three short cells and a basis, and in `docs/guide.md` also examples, measurements and
open questions. Tests compare the names of models with `posenc.models.published` and the cards, and
the numbers with the stores in `studies`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from posenc.support.notebook import table

HEADS = "you have", "take", "because"
BASES = {
    "convention": "published models do so; nothing here shows that it is needed",
    "computed": "it follows from the formula and the settings",
    "measured": "small models were trained here, and the numbers are in a store",
}
# studies/fair-text: bits a character at L, at 2 L reading all, and at 2 L cropped to the last L
READ: Mapping[str, tuple[float, float, float]] = {
    "RoPE": (1.913, 4.512, 1.895),
    "NoPE": (2.078, 3.870, 2.095),
    "ALiBi": (2.054, 3.343, 2.075),
    "FIRE": (1.913, 2.143, 1.898),
    "T5": (1.894, 1.916, 1.863),
    "KERPLE": (1.910, 1.901, 1.896),
    "FoX": (1.908, 1.893, 1.893),
}
WINDOWED = 1.901  # studies/fair-text: RoPE at 2 L, with a window of L
ALIBI = (2.611, 2.591)  # studies/shape-text, four heads: bits at 2 L, reading all and cropped
# Smallest margins in bits, over L…2L, within which rows equal the cropped RoPE (TOST, 5 %)
EQUAL: Mapping[str, float] = {"KERPLE": 0.012, "FoX": 0.013, "T5": 0.023}
# studies/shape-copy, where words may repeat: % copied at 1.2 and 1.4 times the trained length
COPIED: Mapping[str, tuple[int, int]] = {
    "NoPE": (56, 4),
    "ALiBi": (27, 0),
    "T5": (14, 1),
    "RoPE": (0, 0),
    "Sinusoidal": (0, 0),
}
# studies/masked, whose models are encoders: bits a hidden word at n ≤ L
HIDDEN: Mapping[str, float] = {"RoPE": 6.186, "NoPE": 7.730, "Learned": 7.760}
RECALLED = (100, 0)  # studies/use-of-length, recall at 2 L in %: RoPE, and RoPE in a window of L
TWICE = (2.368, 2.372)  # docs/extend_cases.md, a Llama trained on 128: all 128 and the last 64
REMAPPED = 0.023  # docs/extend_cases.md, the same Llama: the best of ReRoPE and Self-Extend
# Pairs (out of 64) of Llama 3's RoPE that meet new angles at 131,072 tokens after 8,192 in training
NEW_ANGLES: Mapping[str, int] = {"as trained": 29, "NTK": 28, "PI": 0, "YaRN": 0}


# The models of studies/fair-text, to which all rows about texts refer
TINY = (
    "tiny models of a novel (L = 64 characters, learning rate 0.004, the largest of the three"
    " tried, for every row, 5,000 steps, 8 seeds)"
)
_EQUAL = ", ".join(f"{name} {margin:.3f}" for name, margin in EQUAL.items())
_ANGLES = ", ".join(f"{name} {count}" for name, count in NEW_ANGLES.items())


def _read(*names: str) -> str:
    """Format the bits per character of encodings on whole and cropped texts.

    The texts are twice as long as those in training.
    """
    return ", ".join(f"{name} {READ[name][1]:.3f} and {READ[name][2]:.3f}" for name in names)


@dataclass(frozen=True)
class Use:
    """One recommendation of the guide: a situation, an encoding, and the evidence.

    - `use`, `answer`, `because`: the reader's situation, the encoding to use, and the reason, each
      in a few words
    - `basis`: the kind of evidence, a key of `BASES`
    - `does`: models that do this
    - `measured`: the measurements of this repository
    - `unknown`: open questions
    """

    use: str
    answer: str
    because: str
    basis: Literal["convention", "computed", "measured"]
    does: str
    measured: str
    unknown: str

    @property
    def reason(self) -> str:
        """The reason for a recommendation, followed by the evidence, as text of a table cell."""
        return f"{self.because} (*{self.basis}*)"


class Guide(tuple[Use, ...]):
    """The recommendations of the guide, which a notebook displays as a table."""

    def __repr__(self) -> str:
        return "\n".join(f"{row.use}: {row.answer}" for row in self)

    def _repr_html_(self) -> str:
        cells = [(row.use, row.answer, row.reason) for row in self]
        rows = [[cell.replace("*", "").replace("`", "") for cell in row] for row in cells]
        return table(HEADS, rows, "Guide to choosing an encoding")


def guide() -> Guide:
    """Return the guide to choosing an encoding, one row for each use.

    `posenc list --by use` prints the same rows.

    >>> guide()[0].use, guide()[0].answer
    ('a decoder', 'RoPE')
    """
    return Guide(GUIDE)


GUIDE = (
    Use(
        "a decoder",
        "RoPE",
        "most open decoders use it, Llama and Qwen among them",
        "convention",
        "Llama 3.1, Qwen3, phi-4 and most others, in all layers",
        "RoPE's scores depend on the distance alone, and it has no last position (*shift invariant*"
        f" and *any length* in the table of properties). Of {TINY}, tested at n = L, those with"
        f" RoPE need {READ['RoPE'][0]:.3f} bits a character, with T5 {READ['T5'][0]:.3f} and with"
        f" NoPE {READ['NoPE'][0]:.3f}. The plan does not rank them.",
        "Which encoding learns best at scale: the models trained here are tiny.",
    ),
    Use(
        "a decoder to train on long texts",
        "RoPE, with windows in most layers; in the rest a large base, p-RoPE or NoPE",
        "Gemma 3 and 4, Llama 4 and EXAONE 4 do",
        "convention",
        "a large base: Gemma 3; p-RoPE: Gemma 4; NoPE: Llama 4, EXAONE 4, and without windows"
        " SmolLM3",
        "No study here trains windows, or this mixture of layers, on long texts. The RoPE of the"
        f" first row, tested with a window of L, needs {WINDOWED:.3f} bits a character at 2 L. It"
        " was trained on L characters, where a window hides nothing.",
        "The effect of windows and mixtures when they are trained on long texts.",
    ),
    Use(
        "a trained RoPE model, longer texts",
        "YaRN, then measure: `posenc extend --prove`",
        f"at 16 times its length, {NEW_ANGLES['as trained']} of Llama 3's 64 pairs meet new angles,"
        f" with YaRN {NEW_ANGLES['YaRN']}",
        "computed",
        "DeepSeek-V3, Kimi-K2, gpt-oss, Olmo-3.1; a method of its own: Llama 3.1, Phi-3.5",
        "Of 64 pairs of Llama 3's RoPE, these meet new angles at 131,072 tokens after 8,192 in"
        f" training: {_ANGLES}. PI has a price that this count does not show: all neighbouring"
        " tokens end up 16 times closer; with YaRN only the slow pairs slow down. Four small models"
        " trained without any of these methods read two to eight times the 64 tokens of their"
        " configs. No config saved as much as 0.01 bits compared with reading only the last 64"
        " tokens. There"
        f" is little to gain: one of the four, trained on 128 letters, needs {TWICE[0]} bits with"
        f" 128 letters and {TWICE[1]} with the last 64. ReRoPE and Self-Extend, which no config can"
        f" state, saved up to {REMAPPED} bits with this model, and less than 0.01 with the others.",
        "Whether your model can use texts of that length: `posenc extend --prove` measures its"
        " loss, or train it on texts of that length.",
    ),
    Use(
        "a trained RoPE model, left as it is",
        "only the last L tokens (L: the trained length)",
        f"tiny models at 2 L need {READ['RoPE'][1]:.2f} bits a character reading all,"
        f" {READ['RoPE'][2]:.2f} reading the last L",
        "measured",
        "windows in half of the layers or more: Gemma-3, gpt-oss, Olmo-3.1",
        "The models of the first row need these bits at 2 L, reading all and cropped to the last L:"
        f" {_read('RoPE', 'NoPE', 'ALiBi')}. ALiBi has two heads there; with four, rate 0.001 and"
        f" 1,500 steps it needs {ALIBI[0]:.3f} and {ALIBI[1]:.3f}. All of them use only the last 6"
        " to 10 letters even within L, so no encoding could have gained from more. In another"
        " study, models were trained to copy L = 10 words, which may repeat (learning rate 0.001,"
        f" 2,000 steps, 6 seeds). At 1.2 L those with RoPE copied {COPIED['RoPE'][0]} % of the"
        f" texts, with NoPE {COPIED['NoPE'][0]} %; that study has too few seeds to decide any of"
        " its contrasts. Where no word repeats, with four times the batch and rate, RoPE copies"
        " longer texts in a pilot of one seed (studies/use-of-length). The answer may also lie"
        " farther back than the last L tokens. In the same pilot, of recall (L = 20), RoPE finds"
        f" {RECALLED[0]} % at 2 L, and {RECALLED[1]} % in a window of L.",
        "Whether large models behave in the same way, or these at other lengths, steps and larger"
        " rates.",
    ),
    Use(
        "a decoder to train, to read beyond L",
        "KERPLE or FoX",
        "from L to 2 L, tiny models equal a cropped RoPE within"
        f" {max(EQUAL['KERPLE'], EQUAL['FoX'])} bits",
        "measured",
        "none of the models whose configs are packaged",
        "Of the models of the first row, three equal the cropped RoPE when they read on, within"
        f" these margins (bits, from L to 2 L; not planned in advance): {_EQUAL}. Bits at 2 L,"
        f" reading all and cropped to L: {_read('KERPLE', 'FoX', 'T5')}. FoX has learned a window.",
        "Whether either helps a large model, or a model whose texts need tokens beyond L. CoPE,"
        " PaTH, Wall and Selective RoPE also derive distances from the tokens, but no study here"
        " includes them.",
    ),
    Use(
        "an encoder",
        "RoPE",
        "ModernBERT uses it; a learned table ends at its length",
        "convention",
        "RoPE: ModernBERT; Learned: BERT, ViT; DeBERTa has vectors of its own for distances",
        "A table ends at its length (*any length* in the table of properties). Tiny encoders that"
        " fill in hidden words of a novel (L = 32 words, a learning rate chosen for each, 3,000"
        f" steps, 8 seeds) need {HIDDEN['RoPE']:.3f} bits a hidden word at n ≤ L with RoPE,"
        f" {HIDDEN['Learned']:.3f} with a learned table and {HIDDEN['NoPE']:.3f} without positions."
        " With each seed the last two differ by less than 0.1.",
        "Which one learns best if tables are trained for longer.",
    ),
    Use(
        "pictures or video",
        "Axial RoPE or M-RoPE",
        "EVA-02 and Pixtral use the first, Qwen2.5-VL the second",
        "convention",
        "Axial RoPE: EVA-02, Pixtral; M-RoPE: Qwen2.5-VL",
        "The table of properties shows which encodings accept positions with *several axes*."
        " RoPE-Mixed, LieRE and STRING accept them too.",
        "Which one is best: no study here is trained on pictures.",
    ),
)


def markdown() -> str:
    """Return the guide's short table for README.md, as Markdown."""
    return _grid(HEADS, [(row.use, row.answer, row.reason) for row in GUIDE])


def page() -> str:
    """Return `docs/guide.md`: the short table, the details of each row, and the numbers."""
    parts = [
        "# Choose an encoding",
        "Find the row that describes your model: an encoding to take, the reason, and what the"
        " reason rests on. `posenc list --by use` prints the same rows in a terminal, and"
        " `make table` writes this page.",
        markdown(),
        "\n".join(f"- *{basis}*: {meaning}." for basis, meaning in BASES.items()),
        "L is the trained length and n the length of a tested text. Small models show what happens"
        " at their length, learning rate and steps. A row that fails there may succeed under other"
        " conditions, and no study here shows which encoding is best at scale.",
    ]
    for row in GUIDE:
        parts += [
            f"## {row.use[0].upper()}{row.use[1:]}",
            f"**{row.answer}**: {row.reason}.",
            f"- Models that do it: {row.does}.\n- Measured here: {row.measured}\n"
            f"- Not known: {row.unknown}",
        ]
    return "\n\n".join([*parts, "## The numbers as tables", *_tables()]) + "\n"


def _tables() -> list[str]:
    bits = [(name, *(f"{one:.3f}" for one in numbers)) for name, numbers in READ.items()]
    shares = [(name, f"{near} %", f"{far} %") for name, (near, far) in COPIED.items()]
    return [
        f"Bits a character of {TINY}, the models of [fair-text](../studies/fair-text):",
        _grid(("encoding", "n = L", "n = 2 L, all of it", "n = 2 L, the last L"), bits),
        "Texts copied without a mistake ([shape-copy](../studies/shape-copy), conditions above):",
        _grid(("encoding", "n = 1.2 L", "n = 1.4 L"), shares),
        "Pairs, of 64, of Llama 3's RoPE that meet new angles at 131,072 tokens after 8,192:",
        _grid(("method", "pairs"), [(name, str(count)) for name, count in NEW_ANGLES.items()]),
        "Bits a hidden word at n ≤ L ([masked](../studies/masked), conditions above):",
        _grid(("encoding", "bits"), [(name, f"{one:.3f}") for name, one in HIDDEN.items()]),
    ]


def _grid(heads: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [heads, ("---",) * len(heads), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
