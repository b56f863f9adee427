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
    "convention": "published models make this choice; no study of posenc shows that it is needed",
    "computed": "the reason follows from the formula of the encoding and the settings of the model",
    "measured": "we trained small models, and a file in `studies/` stores the numbers",
}
# studies/fair-text: bits per character at L, at 2 L reading all, and at 2 L cropped to the last L
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
# studies/content-or-place-10, rate 4e-3: % copied, mean over L < n ≤ 2 L, of texts of unique words
# and of texts in which words may repeat
COPIED_BEYOND: Mapping[str, tuple[int, int]] = {
    "T5": (59, 32),
    "NoPE": (25, 19),
    "ALiBi": (19, 16),
    "RoPE": (1, 0),
    "RoPE, trained on texts up to 2 L": (100, 100),
}
# studies/one-period-8, by period P: % copied of texts of L + P words, and of one word more; and at
# n = L + P, % copied by NoPE and by a RoPE that was trained on texts of up to 2 L
ONE_PERIOD: Mapping[int, tuple[int, int, int, int]] = {
    5: (53, 0, 0, 99),
    6: (40, 0, 0, 99),
    7: (12, 0, 0, 99),
    8: (5, 0, 0, 100),
    9: (0, 0, 0, 42),
}
# studies/masked, whose models are encoders: bits a hidden word at n ≤ L
HIDDEN: Mapping[str, float] = {"RoPE": 6.186, "NoPE": 7.730, "Learned": 7.760}
RECALLED = (100, 0)  # studies/use-of-length, recall at 2 L in %: RoPE, and RoPE in a window of L
# studies/marks-8: % of pictures right at 12 × 12 and 16 × 16 patches, after training on 8 × 8
SIDES: Mapping[str, tuple[int, int]] = {
    "a learned table that is resized": (96, 92),
    "axial RoPE": (86, 77),
    "sinusoids": (85, 54),
    "RoPE-Mixed": (59, 31),
    "no encoding": (24, 23),
}
SIDES_TAUGHT = 100  # the same at 16 × 16, by RoPE-Mixed that is trained there
TWICE = (2.368, 2.372)  # docs/extend_cases.md, a Llama trained on 128: all 128 and the last 64
REMAPPED = 0.023  # docs/extend_cases.md, the same Llama: the best of ReRoPE and Self-Extend
# Pairs (out of 64) of Llama 3's RoPE that meet new angles at 131,072 tokens after 8,192 in training
NEW_ANGLES: Mapping[str, int] = {"as trained": 29, "NTK": 28, "PI": 0, "YaRN": 0}


# The models of studies/fair-text, to which all rows about texts refer
TINY = (
    "tiny language models on a novel (L = 64 characters, learning rate 0.004, the largest of the"
    " three tried, for every encoding, 5,000 steps, 8 seeds)"
)
_EQUAL = ", ".join(f"{name} {margin:.3f}" for name, margin in EQUAL.items())
_SIDES = ", ".join(f"{name} {near} and {far}" for name, (near, far) in SIDES.items())
_ANGLES = ", ".join(f"{name} {count}" for name, count in NEW_ANGLES.items())


def _read(*names: str) -> str:
    """List each encoding's loss in bits per character on whole texts and on cropped texts.

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
        "most open decoders use RoPE, Llama and Qwen among them",
        "convention",
        "Llama 3.1, Qwen3, phi-4 and most others, in all layers",
        "RoPE's scores depend on the distance alone, and RoPE works at any position (the columns"
        " *shift invariant* and *any length* in the table of properties). We trained"
        f" {TINY}. On texts of length n = L, models with RoPE need {READ['RoPE'][0]:.3f} bits per"
        f" character, models with T5 {READ['T5'][0]:.3f}, and models with NoPE"
        f" {READ['NoPE'][0]:.3f}. This study was not planned to rank the encodings.",
        "Which encoding learns best at scale: the models trained here are tiny.",
    ),
    Use(
        "a decoder to train on long texts",
        "RoPE with attention windows in most layers; in the other layers a large base, p-RoPE or"
        " NoPE",
        "Gemma 3 and 4, Llama 4 and EXAONE 4 mix layers in this way",
        "convention",
        "in the layers without a window, a large base: Gemma 3; p-RoPE: Gemma 4; NoPE: Llama 4,"
        " EXAONE 4. SmolLM3 has NoPE in some layers, but no windows",
        "No study of posenc trains a model with windows, or with this mixture of layers, on long"
        " texts. The RoPE models of the section “A decoder” were also tested with an attention"
        f" window of L tokens: on texts of 2 L, these models need {WINDOWED:.3f} bits per"
        " character. The models were trained without a window, on texts of L characters, in which a"
        " window of L tokens would hide nothing.",
        "The effect of attention windows and mixed layers if models are trained on long texts.",
    ),
    Use(
        "a trained RoPE model, longer texts",
        "YaRN; then measure the loss with `posenc extend --prove`",
        f"at 16 times the trained length, {NEW_ANGLES['as trained']} of Llama 3's 64 rotary pairs"
        f" reach untrained angles; with YaRN, {NEW_ANGLES['YaRN'] or 'none'}",
        "computed",
        "YaRN: DeepSeek-V3, Kimi-K2, gpt-oss, Olmo-3.1; methods of their own: Llama 3.1, Phi-3.5",
        "Llama 3's RoPE rotates 64 pairs of channels. If the model was trained on 8,192 tokens and"
        " reads 131,072, the number of pairs that reach angles unseen in training is, for each"
        f" method: {_ANGLES}. These counts of pairs hide a cost of PI: it moves all neighbouring"
        " tokens 16 times closer together, while YaRN slows down only the slow pairs. We tested"
        " four small models that were trained without any of these methods, on texts of two to"
        " eight times the 64 tokens of their configs. Compared with reading only the last 64"
        " tokens, no config with an extension method saved as much as 0.01 bits per token. The four"
        f" models could gain little from longer texts: one of the four, trained on 128"
        f" letters, needs {TWICE[0]} bits per letter if it reads 128"
        f" letters and {TWICE[1]} if it reads only the last 64. A config cannot express the methods"
        f" ReRoPE and Self-Extend; these two methods saved up to {REMAPPED} bits per token with the"
        " model trained on 128 letters, and less than 0.01 with the other three models.",
        "Whether your model can use texts longer than its trained length. `posenc extend --prove`"
        " measures the loss of your model on long texts; the alternative is to train the model on"
        " long texts.",
    ),
    Use(
        "a trained RoPE model, left as it is",
        "only the last L tokens (L: the trained length)",
        f"on texts of 2 L, tiny models need {READ['RoPE'][1]:.2f} bits per character,"
        f" {READ['RoPE'][2]:.2f} when reading only the last L",
        "measured",
        "Gemma-3, gpt-oss and Olmo-3.1 have attention windows in half of their layers or more",
        "The models of the section “A decoder” need these bits per character on texts of 2 L; the"
        " first number is for reading the whole text, the second for reading only the last L:"
        f" {_read('RoPE', 'NoPE', 'ALiBi')}. These ALiBi models have two heads. In"
        " a second study, ALiBi models with four heads, learning rate 0.001 and 1,500 steps need"
        f" {ALIBI[0]:.3f} bits for the whole text and {ALIBI[1]:.3f} bits for the last L"
        " characters. All models of both studies use only the last 6 to 10 letters of a text, even"
        " within L, so no encoding could have gained more from longer texts. In a third study,"
        " models were trained to copy"
        " L = 10 words, which may repeat"
        " (learning rate 0.001, 2,000 steps, 6 seeds). At 1.2 L, models with RoPE copied"
        f" {COPIED['RoPE'][0]} % of the texts and models with NoPE {COPIED['NoPE'][0]} %; the third"
        " study has too few seeds to decide any of its contrasts. A pilot of one seed trains RoPE"
        " on texts in which no word repeats, with four times the batch size and learning rate of"
        " the third study; this RoPE copies texts longer than L (studies/use-of-length). Reading"
        " only the last L tokens fails if the answer lies farther back: in the same pilot, in a"
        " recall task (L = 20), RoPE finds"
        f" {RECALLED[0]} % of the answers at 2 L, and {RECALLED[1]} % in a window of L.",
        "Whether the same holds for large models, and for tiny models at other lengths, numbers of"
        " training steps and larger learning rates.",
    ),
    Use(
        "a decoder to train, to read beyond L",
        "KERPLE or FoX",
        "up to 2 L, tiny models come within"
        f" {max(EQUAL['KERPLE'], EQUAL['FoX'])} bits of RoPE models that read only the last L",
        "measured",
        "none of the models whose configs are packaged",
        "On texts of length L to 2 L, three encodings of the section “A decoder”, reading the whole"
        " text, differ from RoPE models that read only the last L characters by at most this number"
        f" of bits per character (an analysis not planned in advance): {_EQUAL}. Bits per"
        " character at 2 L, first for reading the whole text, then for reading the last L:"
        f" {_read('KERPLE', 'FoX', 'T5')}. The FoX models have learned to attend only to near"
        " characters.",
        "Whether KERPLE or FoX helps a large model, or a task that needs tokens farther back than"
        " L. CoPE, PaTH, Wall and Selective RoPE also derive distances from the content of tokens,"
        " but no study of posenc includes these four.",
    ),
    Use(
        "an encoder",
        "RoPE",
        "ModernBERT uses RoPE; a learned position table has no rows beyond its length",
        "convention",
        "RoPE: ModernBERT; Learned: BERT, ViT; DeBERTa has vectors of its own for distances",
        "A learned position table has no rows beyond its length (the column *any length* in the"
        " table of properties). We trained tiny encoders to fill in hidden words of a novel"
        " (L = 32 words, a learning rate chosen for each encoding, 3,000 steps, 8 seeds). On texts"
        " of length"
        f" n ≤ L, the encoders need {HIDDEN['RoPE']:.3f} bits per hidden word with RoPE,"
        f" {HIDDEN['Learned']:.3f} with a learned table and {HIDDEN['NoPE']:.3f} without"
        " positions. For each seed, the learned table and the model without positions differ by"
        " less than 0.1 bits.",
        "Which encoding learns best if models with a learned position table are trained for"
        " longer.",
    ),
    Use(
        "pictures or video",
        "Axial RoPE or M-RoPE",
        "EVA-02 and Pixtral use Axial RoPE, Qwen2.5-VL uses M-RoPE",
        "convention",
        "Axial RoPE: EVA-02, Pixtral; M-RoPE: Qwen2.5-VL",
        "The column *several axes* in the table of properties shows which encodings accept"
        " positions with several axes, such as the row and column of an image patch. RoPE-Mixed,"
        " LieRE and STRING, for example, also accept positions with several axes."
        " In a study (studies/marks-8, 6 seeds, learning rate 0.004, 600 steps), tiny models were"
        " trained on pictures of 8 × 8 patches to state on which side of one mark another mark"
        " lies; chance is 25 %. Percentages of right answers on pictures of 12 × 12 and 16 × 16"
        f" patches: {_SIDES}. RoPE-Mixed models trained on 16 × 16 patches are right on"
        f" {SIDES_TAUGHT} percent of the pictures of 16 × 16 patches. With one seed, the model with"
        " a resized table did not learn the task, so the planned comparison of the resized table"
        " with RoPE-Mixed is not decided. The base of axial RoPE is 10,000,"
        " that of RoPE-Mixed 10.",
        "Which encoding is best for real pictures, and whether the base or the directions of θ"
        " cause the difference between the two RoPEs.",
    ),
)


def markdown() -> str:
    """Return the guide's short table for README.md, as Markdown."""
    return _grid(HEADS, [(row.use, row.answer, row.reason) for row in GUIDE])


def page() -> str:
    """Return `docs/guide.md`: the short table, the details of each row, and the numbers."""
    parts = [
        "# Choose an encoding",
        "Find the row of the table that describes your model. The row names an encoding, the"
        " reason to use this encoding, and the kind of evidence for the reason. `posenc list --by"
        " use` prints the same rows in a terminal, and `make table` writes this page.",
        markdown(),
        "\n".join(f"- *{basis}*: {meaning}." for basis, meaning in BASES.items()),
        "On this page, L is the length of the longest training text, and n is the length of a"
        " tested text. Results of small models hold for the lengths, learning rates and numbers of"
        " steps that were tried. An encoding that fails in a study may succeed under other"
        " conditions, and no study of posenc shows which encoding is best at scale.",
    ]
    for row in GUIDE:
        parts += [
            f"## {row.use[0].upper()}{row.use[1:]}",
            f"**{row.answer}**: {row.reason}.",
            f"- Models with this choice: {row.does}.\n- Measured here: {row.measured}\n"
            f"- Not known: {row.unknown}",
        ]
    return "\n\n".join([*parts, "## The numbers as tables", *_tables()]) + "\n"


def _tables() -> list[str]:
    bits = [(name, *(f"{one:.3f}" for one in numbers)) for name, numbers in READ.items()]
    shares = [(name, f"{near} %", f"{far} %") for name, (near, far) in COPIED.items()]
    periods = [(str(P), *(f"{share} %" for share in shares)) for P, shares in ONE_PERIOD.items()]
    beyond = [(name, f"{one} %", f"{other} %") for name, (one, other) in COPIED_BEYOND.items()]
    return [
        f"Bits per character of {TINY}, from the study [fair-text](../studies/fair-text):",
        _grid(("encoding", "n = L", "n = 2 L, all of it", "n = 2 L, the last L"), bits),
        "Share of texts that models copy without a mistake, from the study"
        " [shape-copy](../studies/shape-copy) (L = 10 words, which may repeat):",
        _grid(("encoding", "n = 1.2 L", "n = 1.4 L"), shares),
        "Share of texts that models copy without a mistake, as a mean over the lengths from L to"
        " 2 L, from the study with controls [content-or-place-10](../studies/content-or-place-10)"
        " (L = 10 words). Repeated words are not the reason why NoPE copies longer texts than RoPE"
        " does, because the two also differ if no word repeats:",
        _grid(("encoding", "no word repeats", "words may repeat"), beyond),
        "Share of texts that a RoPE with one period P copies without a mistake, from the study with"
        " controls [one-period-8](../studies/one-period-8) (L = 8 words). Some texts of L + P words"
        " are copied and almost none with one word more; for P = 7 and P = 9 no difference was"
        " shown. The last column has a RoPE that was trained on texts of up to 2 L = 16 words:",
        _grid(("P", "n = L + P", "n = L + P + 1", "NoPE, n = L + P", "trained on 2 L"), periods),
        "Number of the 64 rotary pairs of Llama 3 that reach new angles at 131,072 tokens, after"
        " training on 8,192 tokens:",
        _grid(("method", "pairs"), [(name, str(count)) for name, count in NEW_ANGLES.items()]),
        "Bits per hidden word of tiny encoders at n ≤ L, from the study [masked](../studies/masked)"
        " (L = 32 words):",
        _grid(("encoding", "bits"), [(name, f"{one:.3f}") for name, one in HIDDEN.items()]),
    ]


def _grid(heads: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [heads, ("---",) * len(heads), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
