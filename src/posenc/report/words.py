"""Findings in words, the same on the terminal and on the page."""

from collections.abc import Callable

from posenc.analysis.comparison import BLIND, Comparison, Measured

SHORT = {  # headings of two short lines
    "unique_positions": "unique\nrows",
    "bounded": "bounded",
    "norm_constant": "norm\nconst.",
    "linear_shift": "linear\nshift",
    "shift_invariant": "shift\ninvar.",
    "symmetric": "symmetric",
    "decaying": "decaying",
    "norm_preserving": "keeps\nnorms",
    "any_length": "any\nlength",
    "length_independent": "length\nindep.",
    "order_sensitive": "order\nsensit.",
    "learned": "learned",
    "several_axes": "several\naxes",
}


def label(name: str) -> str:
    """The name of a property as it is read: "any length"."""
    return name.replace("_", " ")


def change(share: float | None) -> str:
    """How much shuffling or repeating changes: "blind", "39%"; "" where nothing was tried."""
    if share is None:
        return ""
    return "blind" if share < BLIND else _percent(share)


def count(parameters: int) -> str:
    """As short as it can be told: "", "128", "4.2k", "131k".

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
    """What moving the text does: "same", "120%", "refused"."""
    if share is None:
        return "refused"
    return "same" if share < BLIND else _percent(share)


def verdict(result: Comparison) -> list[str]:
    """A few sentences, made from the numbers."""
    sentences = [
        ("Blind to word order without a mask", lambda m: m.shuffle.plain < BLIND),
        ("The same wherever the text stands, to a million", _everywhere),
        ("Different further along", lambda m: _accepts(m) and not _everywhere(m)),
        ("Refuses positions past its table", lambda m: not _accepts(m)),
        ("Scores never rise with distance", lambda m: m.properties["decaying"].holds),
    ]
    return [f"{what}: {names}." for what, test in sentences if (names := _names(result, test))]


def _everywhere(measured: Measured) -> bool:
    return all(far.change is not None and far.change < BLIND for far in measured.far)


def _accepts(measured: Measured) -> bool:
    return all(far.change is not None for far in measured.far)


def _names(result: Comparison, test: Callable[[Measured], bool | None]) -> str:
    return ", ".join(measured.name for measured in result.encodings if test(measured))


def _percent(share: float) -> str:
    if share > 9.99:
        return f"{share:.0e}".replace("e+0", "e") + "×" if share >= 1000 else f"{share:.0f}×"
    return f"{share:.0%}" if share >= 0.01 else "<1%"
