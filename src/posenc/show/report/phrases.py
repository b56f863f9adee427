"""Format numbers and names as short phrases, for the terminal, the pages and the explorer."""

from collections.abc import Sequence
from itertools import groupby
from re import sub
from textwrap import dedent

from posenc.analysis.rounding import BLIND
from posenc.models.inspection import Turning
from posenc.support.numbers import number as number

QUOTES = '"', "“", "”", "''", "``"
# Effects of context extension on a pair
CHANGES = {
    "kept": "unchanged",
    "stretched": "slowed in part",
    "interpolated": "slowed by the full factor",
    "still": "not turning",
}


# Names in papers for the methods of context extension
METHODS = {
    "none": "as trained",
    "configured": "as configured",
    "interpolate": "PI",
    "ntk": "NTK-aware",
    "dynamic_ntk": "dynamic NTK",
    "by_parts": "NTK by parts",
    "yarn": "YaRN",
    "llama3": "Llama 3",
    "longrope": "LongRoPE",
}


def label(name: str) -> str:
    """Return the name of a property as words, such as "any length"."""
    return name.replace("_", " ")


def masked(names: Sequence[str]) -> str:
    """State which encodings were measured under a causal mask.

    The sentence is "" if `names` is empty.

    >>> masked(["FoX", "CoPE"])
    'Made for causal attention, and measured under a causal mask: FoX, CoPE.'
    """
    what = "Made for causal attention, and measured under a causal mask"
    return f"{what}: {', '.join(names)}." if names else ""


def change(share: float | None) -> str:
    """Format the change of outputs after a shuffle or repetition: "none", "39%".

    None becomes "".
    """
    if share is None:
        return ""
    return "none" if share < BLIND else _percent(share)


def count(parameters: int) -> str:
    """Format a number of parameters, such as "128", "4.2k" or "131k"; "" for 0.

    >>> count(4_224), count(131_072), count(2_100_000)
    ('4.2k', '131k', '2.1M')
    """
    if not parameters:
        return ""
    for size, letter in ((1_000_000, "M"), (1_000, "k")):
        if parameters >= size:
            return f"{parameters / size:.{1 if parameters < 10 * size else 0}f}{letter}"
    return str(parameters)


def moved(share: float | None) -> str:
    """Format the change of outputs when all positions are shifted: "same", "120%", or "refused".

    "refused" means that the encoding does not accept the shifted positions.
    """
    if share is None:
        return "refused"
    return "same" if share < BLIND else _percent(share)


def sentence(words: Sequence[str]) -> str:
    """Join words and punctuation into a sentence. Quotation marks are left out.

    >>> sentence(["we", "shall", ",", "miss", '"', "morland", "."])
    'we shall, miss morland.'
    """
    kept = " ".join(word for word in words if word not in QUOTES)
    return sub(r" +([,.;:!?])", r"\1", kept)


def blocks(text: str) -> list[tuple[str, str]]:
    r"""Split a docstring into blocks: ("prose", one line) or ("formula", unchanged lines).

    >>> blocks("Sine: add it.\n\n    PE(p) = sin p\n\nIt is\nsmooth.")
    [('prose', 'Sine: add it.'), ('formula', 'PE(p) = sin p'), ('prose', 'It is smooth.')]
    """
    return [
        ("formula", dedent(block))
        if block.startswith("    ")
        else ("prose", " ".join(block.split()))
        for block in text.split("\n\n")
    ]


def duration(seconds: float) -> str:
    """Format seconds as a duration: "4.2 s", "3 min 20 s"."""
    if seconds < 100:
        return f"{seconds:.2g} s"
    return f"{seconds // 60:.0f} min {seconds % 60:.0f} s"


def brief(seconds: float) -> str:
    """Format a duration with three digits, in s, ms or µs.

    >>> brief(1.23456e-5), brief(0.0421), brief(3.0)
    ('12.3 µs', '42.1 ms', '3.00 s')
    """
    size, unit = next(
        x for x in ((1, "s"), (1e-3, "ms"), (1e-6, "µs")) if seconds >= x[0] or x[0] < 1e-5
    )
    value = seconds / size
    return f"{value:.{2 if value < 10 else 1 if value < 100 else 0}f} {unit}"


def tokens(count: float) -> str:
    """Format a number of tokens. Numbers below 1,000 have four significant digits.

    >>> tokens(6.283185), tokens(160114.3), tokens(float("inf"))
    ('6.283', '160,114', '∞')
    """
    return "∞" if count == float("inf") else f"{count:,.4g}" if count < 1000 else f"{count:,.0f}"


def runs(layers: list[int]) -> str:
    """Format layer indices as ranges, such as "layers 0–3, 7".

    >>> runs([0, 1, 2, 5, 7, 8]), runs([3]), runs([5, 11, 17, 23])
    ('layers 0–2, 5, 7–8', 'layer 3', 'layers 5, 11, … 23 (4)')
    """
    together = [
        [n for _, n in run]
        for _, run in groupby(enumerate(layers), key=lambda pair: pair[1] - pair[0])
    ]
    named = [f"{run[0]}–{run[-1]}" if len(run) > 1 else str(run[0]) for run in together]
    if len(named) > 3:
        named = [named[0], named[1], f"… {named[-1]} ({len(layers)})"]
        return f"layers {named[0]}, {named[1]}, {named[2]}"
    return f"layer{'s' if len(layers) > 1 else ''} {', '.join(named)}"


def _percent(share: float) -> str:
    if share > 9.99:
        return f"{share:,.0f}×"
    return f"{share:.0%}" if share >= 0.01 else "<1%"


def seen_in(rotation: Turning, kind: str) -> str:
    """Describe how the angles of some rotary pairs compare with those seen in training.

    - `kind`: "all", "part", "new" or "still"
    """
    before = f"{rotation.trained:,} tokens" if rotation.trained else "training"
    return {
        "all": f"complete a turn in {before}",
        "part": f"complete part of a turn in {before}, and need no more",
        "new": f"need angles beyond those of {before}",
        "still": "do not turn",
    }[kind]
