"""The tasks of studies: each task generates texts of a given length n.

A task writes texts of symbols and marks some as answers. Only answers are learned and graded, and a
text counts as right if all its answers are. A task of your own is one function:

    def double(n, random):
        digits = [random.choice("0123456789") for _ in range(n)]
        return [*digits, "="], [*digits, *digits]

    task = Task("double", double, symbols="0123456789=")

Formats of copy, reverse and count: Kazemnejad et al. 2023, "The Impact of Positional Encoding on
Length Generalization", arXiv:2305.19466, appendix. Sort, mode and parity: Zhou et al. 2024, "What
Algorithms can Transformers Learn?", arXiv:2310.16028. Addition: Zhou et al. 2024, "Transformers Can
Achieve Length Generalization But Not Robustly", arXiv:2402.09371, §3. Recall: Arora et al. 2023,
"Zoology", arXiv:2312.04927, §4. Flip-flop: Liu et al. 2023, "Exposing Attention Glitches with
Flip-Flop Language Modeling", arXiv:2306.00946, definition 1. Pass key: Mohtashami & Jaggi 2023,
"Landmark Attention", arXiv:2305.16300.
"""

import re
import zlib
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import cached_property
from itertools import chain
from math import ceil, prod
from pathlib import Path
from random import Random
from typing import NamedTuple
from zipfile import BadZipFile, ZipFile

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from posenc.analysis.text import novel_letters, parse
from posenc.properties.user_code import is_own, named
from posenc.support.arguments import brief, count
from posenc.support.extras import how_to_install

PAD, BEGIN, SEPARATOR, END, MASK = "<pad>", "<bos>", "<sep>", "<eos>", "<mask>"
MARKS = (PAD, BEGIN, SEPARATOR, END)
WORDS = tuple(f"w{n}" for n in range(100))
MANY_WORDS = tuple(f"w{n}" for n in range(4_096))
NUMBERS = tuple(f"{n:02}" for n in range(50))
DIGITS = tuple("0123456789")
HINTS = tuple(f"#{n}" for n in range(128))  # a symbol for each power of ten
KEYS = tuple(f"k{n}" for n in range(128))
VALUES = tuple(f"v{n}" for n in range(128))
BITS = ("0", "1")
RARE = "<rare>"
PATCHES = ("empty", "red", "blue")
OFFSET = 3  # most rows and columns between the marks of `marks_offset`
SIDES = (("=above left", "=above right"), ("=below left", "=below right"))
MOST_BYTES = 2**30  # bytes of an unpacked array of pictures
MOST_DIGITS = 4_000  # Python does not write longer numbers by default
DAMAGED = (OSError, ValueError, LookupError, RuntimeError, EOFError, BadZipFile, zlib.error)

Symbols = Sequence[str]
Answered = tuple[Symbols, Symbols]  # a prompt and its answer, all of which is graded


class TaskText(NamedTuple):
    """A text that a task generated: its symbols, and which of them are answers.

    - `symbols`: symbols in the order in which they are read
    - `graded`: True for each answer
    - `targets`: for a task that is read both ways, the symbol to predict at each place; None: each
      symbol is predicted from those before it
    """

    symbols: list[str]
    graded: list[bool]
    targets: list[str] | None = None


class Batch(NamedTuple):
    """A batch of texts, padded to the longest; padding is never graded."""

    inputs: Int[Tensor, "text token"]  # tokens that the model reads
    targets: Int[Tensor, "text token"]  # tokens to predict at each of them
    answers: Bool[Tensor, "text token"]  # the mask of the `targets` that are graded
    lengths: list[int]  # tokens of each text
    points: Int[Tensor, "token axis"] | None = None  # row and column of each pixel of an image

    def to(self, device: str | torch.device) -> "Batch":
        """Return a copy of the batch on the given device."""
        points = None if self.points is None else self.points.to(device)
        inputs, targets, answers = self.inputs.to(device), self.targets.to(device), self.answers
        return Batch(inputs, targets, answers.to(device), self.lengths, points)


@dataclass(frozen=True)
class Task:
    """A task of a study: its text generator, vocabulary and text lengths.

    - `name`: name in plans and tables
    - `write`: function (n, random) that returns a prompt and its answer, or a `TaskText`
    - `symbols`: vocabulary without `MARKS`
    - `trained`: greatest length L in training
    - `least`: least length in training; lengths are drawn uniformly from `least` … `trained`
    - `tested`: lengths of evaluation; empty: fifths of L, and every length up to 2 L
    - `held_out`: function that writes the texts of evaluation; None: `write`
    - `in_bits`: every symbol is an answer, and outcomes are bits per symbol
    - `both_ways`: texts are read by an encoder, without a causal mask
    - `points`: function of n that returns the row and column of each token, for encodings of two
      axes
    """

    name: str
    write: Callable[[int, Random], "Answered | TaskText"]
    symbols: Symbols
    trained: int = 20
    least: int = 1
    tested: tuple[int, ...] = ()
    held_out: Callable[[int, Random], "Answered | TaskText"] | None = None
    in_bits: bool = False
    both_ways: bool = False
    points: Callable[[int], list[tuple[int, int]]] | None = None

    def __post_init__(self) -> None:
        count(self.least, "least", 0)
        count(self.trained, "trained", max(1, self.least))
        for n in self.tested:
            count(n, "tested", self.least)
        twice = [symbol for symbol, times in Counter(self.vocabulary).items() if times > 1]
        if twice:
            raise ValueError(
                f"`symbols` must contain no symbol twice, and none of {', '.join(MARKS)}, got"
                f" {', '.join(map(repr, twice[:3]))} in the task {self.name!r}. Rename one of the"
                " symbols."
            )

    @cached_property
    def vocabulary(self) -> tuple[str, ...]:
        """The symbols of the vocabulary: marks such as `<pad>` first, then those of the task."""
        return (*MARKS, *self.symbols)

    @cached_property
    def _number(self) -> dict[str, int]:
        return {symbol: n for n, symbol in enumerate(self.vocabulary)}

    @property
    def lengths(self) -> tuple[int, ...]:
        """The text lengths in tests of the task, by default up to twice the trained length L.

        The default is fifths of L, then L + 1 … 2 L. Every length beyond L is tested, because
        encodings may rank differently at the next one. If L is more than 100, a hundred evenly
        spaced lengths are tested.
        """
        fifths = {max(self.least, round(self.trained * part / 5)) for part in range(1, 6)}
        beyond = range(2 * self.trained, self.trained, -ceil(self.trained / 100))
        return self.tested or (*sorted(fifths), *reversed(beyond))

    def text(self, n: int, random: Random, held_out: bool = False) -> TaskText:
        """Write one text of length n, from `<bos>` to `<eos>`."""
        count(n, "n", self.least)
        write = self.held_out if held_out and self.held_out is not None else self.write
        written = write(n, random)
        if isinstance(written, TaskText):
            # A text with targets has its own <bos>, which may be graded
            if written.targets is not None:
                return written
            return TaskText([BEGIN, *written.symbols], [False, *written.graded])
        prompt, answer = written
        symbols = [BEGIN, *prompt, *answer, END]
        return TaskText(symbols, [False] * (1 + len(prompt)) + [True] * (len(answer) + 1))

    def most_tokens(self) -> int:
        """Return the number of tokens of the longest text.

        To count the tokens, one text of each length is generated.

        Raises the error of the task for a length of which it cannot write a text.
        """
        batches = [self.batch([self.least, self.trained], Random(0))]
        batches += [self.batch([n], Random(0), held_out=True) for n in self.lengths]
        return max(batch.inputs.shape[1] for batch in batches)

    def batch(self, sizes: Sequence[int], random: Random, held_out: bool = False) -> Batch:
        """Generate a text of each length in `sizes`, as token ids padded on the right."""
        texts = [self.text(n, random, held_out) for n in sizes]
        longest = max((len(text.symbols) for text in texts), default=0)
        tokens, targets = (torch.zeros(len(texts), longest, dtype=torch.long) for _ in range(2))
        graded = torch.zeros(len(texts), longest, dtype=torch.bool)
        for row, text in enumerate(texts):
            tokens[row, : len(text.symbols)] = torch.tensor(self.encode(text.symbols))
            graded[row, : len(text.symbols)] = torch.tensor(text.graded)
            symbols = text.targets or text.symbols
            targets[row, : len(text.symbols)] = torch.tensor(self.encode(symbols))
        lengths = [len(text.symbols) for text in texts]
        if not self.both_ways:
            return Batch(tokens[:, :-1], targets[:, 1:], graded[:, 1:], lengths)
        points = None if self.points is None else torch.tensor(self.points(max(sizes)))
        return Batch(tokens, targets, graded, lengths, points)

    def at(self, trained: int | None = None, tested: Sequence[int] = ()) -> "Task":
        """Return a copy of the task that is trained and tested on other text lengths.

        A task that is trained on texts of one length only keeps this property, unless shorter
        texts are tested.
        """
        n = self.trained if trained is None else count(trained, "trained")
        lengths = tuple(tested) or (self.tested if trained is None else self._scaled(n))
        least = min(self.least, n)
        if self.least == self.trained:
            least = min((n, *lengths))
        return replace(self, trained=n, least=least, tested=lengths)

    @cached_property
    def longest(self) -> int:
        """The number of tokens of the longest training text."""
        return len(self.text(self.trained, Random(0)).symbols)

    def _scaled(self, trained: int) -> tuple[int, ...]:
        """Scale the tested lengths in proportion to a new trained length."""
        least = 1 if self.least == self.trained else min(self.least, trained)
        return tuple(sorted({max(least, round(n * trained / self.trained)) for n in self.tested}))

    def training(self, texts: int, random: Random) -> Batch:
        """Write a batch of training texts, with lengths drawn from `least` … `trained`.

        Pictures of different sizes cannot share a batch, so all have the size `trained`.
        """
        least = self.trained if self.points else self.least
        lengths = [random.randint(least, self.trained) for _ in range(count(texts, "texts"))]
        return self.batch(lengths, random)

    def encode(self, symbols: Symbols) -> list[int]:
        """Convert symbols to token ids. Raises ValueError for a symbol outside the vocabulary."""
        try:
            return [self._number[symbol] for symbol in symbols]
        except KeyError as unknown:
            raise ValueError(
                f"`symbols` must contain all symbols of the task {self.name!r}, got the unknown"
                f" symbol {brief(unknown.args[0])}. Add this symbol to `symbols`."
            ) from None


def copy(n: int, random: Random) -> Answered:
    """Copy n words."""
    words = random.choices(WORDS, k=n)
    return [*words, SEPARATOR], words


def unique(words: Symbols) -> Callable[[int, Random], Answered]:
    """Return a function that generates texts of n different words to copy."""

    def write(n: int, random: Random) -> Answered:
        if n > len(words):
            raise ValueError(
                f"`n` must be at most {len(words)}, the number of different words, got {n}. Test"
                " shorter texts."
            )
        drawn = random.sample(words, n)
        return [*drawn, SEPARATOR], drawn

    return write


copy_unique = unique(WORDS)


def copy_repeat(n: int, random: Random) -> Answered:
    """Copy n words that are drawn from only n/2 different words.

    Words repeat, so that the last word does not determine the next one.
    """
    words = random.choices(random.sample(WORDS, min(len(WORDS), -(-n // 2))), k=n)
    return [*words, SEPARATOR], words


def copy_both(n: int, random: Random) -> Answered:
    """Copy n words, which are unique in half of the texts and repeated in the others."""
    return random.choice((copy_unique, copy_repeat))(n, random)


def copy_constant(n: int, random: Random) -> Answered:
    """Copy a text of n equal words."""
    words = [random.choice(WORDS)] * n
    return [*words, SEPARATOR], words


def reverse(n: int, random: Random) -> Answered:
    """Reverse n words."""
    words = random.choices(WORDS, k=n)
    return [*words, SEPARATOR], words[::-1]


def sort(n: int, random: Random) -> Answered:
    """Sort n numbers."""
    numbers = random.choices(NUMBERS, k=n)
    return [*numbers, SEPARATOR], sorted(numbers)


def mode(n: int, random: Random) -> Answered:
    """Find the most frequent of n symbols; no other symbol of the text is as frequent."""
    while True:
        numbers = random.choices(NUMBERS[:10], k=n)
        ranked = Counter(numbers).most_common(2)
        if len(ranked) == 1 or ranked[0][1] > ranked[1][1]:
            return [*numbers, SEPARATOR], [ranked[0][0]]


def counting(n: int, random: Random) -> Answered:
    """Task: given the first and the last of n consecutive words, write all n; w0 follows w99."""
    first = random.randrange(len(WORDS))
    steps = [WORDS[(first + step) % len(WORDS)] for step in range(n)]
    return [steps[0], steps[-1], SEPARATOR], steps


def parity(n: int, random: Random) -> Answered:
    """Compute the parity of n bits.

    This task is a negative control: models are expected to fail on longer texts.
    """
    bits = random.choices(BITS, k=n)
    return [*bits, SEPARATOR], [BITS[bits.count("1") % 2]]


def addition(n: int, random: Random) -> Answered:
    """Add two numbers of n digits; all numbers are written from the last digit to the first."""
    if n > MOST_DIGITS:
        raise ValueError(
            f"`n` must be at most {MOST_DIGITS:,} digits, got {n}. Test shorter numbers."
        )
    first, second = (random.randrange(10 ** (n - 1) if n > 1 else 0, 10**n) for _ in range(2))
    written = lambda value, size: list(f"{value:0{size}}"[::-1])  # noqa: E731
    return [*written(first, n), "+", *written(second, n), "="], written(first + second, n + 1)


def hinted_addition(n: int, random: Random) -> Answered:
    """Add two numbers, with a symbol for the power of ten in front of each digit.

    The symbol for 10⁰ is drawn at random, and the others follow it.
    """
    if n + 1 > len(HINTS):
        raise ValueError(
            f"`n` must be below {len(HINTS)}, the number of symbols for digits in hinted-addition,"
            f" got {n}. Test shorter numbers."
        )
    prompt, answer = addition(n, random)
    start = random.randrange(len(HINTS) - n)
    hint = lambda digits: chain.from_iterable(zip(HINTS[start:], digits, strict=False))  # noqa: E731
    first, second = prompt[:n], prompt[n + 1 : -1]
    return [*hint(first), "+", *hint(second), "="], [*hint(answer)]


def recall(n: int, random: Random, pairs: int = 6) -> TaskText:
    """Recall the value of each key; keys and values stand before n symbols of noise.

    The distance grows with n, and the number of pairs does not.
    """
    keys, values = random.sample(KEYS, pairs), random.choices(VALUES, k=pairs)
    prompt = [*chain.from_iterable(zip(keys, values, strict=True)), *random.choices(WORDS, k=n)]
    queried = random.sample([*zip(keys, values, strict=True)], pairs)
    symbols = [*prompt, SEPARATOR, *chain.from_iterable(queried)]
    graded = [False] * (len(prompt) + 1) + [False, True] * pairs
    return TaskText(symbols, graded)


def variables(n: int, random: Random, values: int = 2, hops: int = 3) -> TaskText:
    """List the variables with a given value, after assignments spread over n symbols of noise.

        k7 = v3 k1 = v9 w5 k2 = k1 w8 w1 k4 = k7 … <sep> v3 k7 k4      graded: k7 k4

    The values are assigned first, so the distance to them grows with n.

    - `values`: number of values
    - `hops`: number of variables with the same value, each assigned from the one before
    """
    valued = random.sample(VALUES, values)
    drawn = random.sample(KEYS, values * hops)
    alike = [drawn[place::values] for place in range(values)]  # variables with the same value
    symbols = [*chain.from_iterable((alike[k][0], "=", valued[k]) for k in range(values))]
    assigned = [
        [alike[k][hop], "=", alike[k][hop - 1]]
        for hop in range(1, hops)
        for k in random.sample(range(values), values)
    ]
    # An assignment precedes the word of noise at its place
    places = sorted(random.choices(range(n + 1), k=len(assigned)))
    for place, word in enumerate([*random.choices(WORDS, k=n), ""]):
        for _ in range(places.count(place)):
            symbols += assigned.pop(0)
        symbols += [word] * bool(word)
    asked = random.randrange(values)
    graded = [False] * (len(symbols) + 2) + [True] * hops
    return TaskText([*symbols, SEPARATOR, valued[asked], *alike[asked]], graded)


def flip_flop(n: int, random: Random, ignored: float = 0.8) -> TaskText:
    """Write n instructions, in which each "read" repeats the bit of the last "write".

    Every instruction is followed by a bit; the bit of an "ignore" is not stored.

    The bits after "read" are the answers.
    """
    if n < 2:
        raise ValueError(
            f"`n` must be at least 2 instructions in flip-flop, a write and a read, got {n}."
        )
    symbols, graded, memory = [], [], random.choice(BITS)
    for step in range(n):
        # The first instruction is a write, so that a bit can be read
        if step == 0:
            instruction = "write"
        elif step == n - 1:
            instruction = "read"
        else:
            rest = (1 - ignored) / 2
            instruction = random.choices(("write", "ignore", "read"), (rest, ignored, rest))[0]
        bit = memory if instruction == "read" else random.choice(BITS)
        memory = bit if instruction == "write" else memory
        symbols += [instruction, bit]
        graded += [False, instruction == "read"]
    return TaskText(symbols, graded)


def _window(n: int, symbols: int, random: Random) -> int:
    """Return a random start index for a window of n symbols in a text of length `symbols`."""
    if not 0 <= n <= symbols:
        raise ValueError(
            f"`n` must be from 0 to {symbols:,}, the number of symbols in the text, got {n:,}."
            " Use a longer text or shorter windows."
        )
    return random.randrange(symbols - n + 1)


def language(text: str, name: str = "language", trained: int = 64, held: float = 0.1) -> Task:
    """Make a task: predict each of n characters of a text from the preceding ones.

    - `text`: a text, whose last part is held out for evaluation
    - `name`: name of the task
    - `trained`: length of training texts, in characters
    - `held`: share of the text that is held out
    """
    symbols = sorted(set(text))
    tested = tuple(round(trained * part) for part in (1, 1.25, 1.5, 2, 4, 8))
    cut = round(len(text) * (1 - _share(held)))
    if len(text) - cut <= max(tested) or cut <= max(tested):
        raise ValueError(
            f"`text` must have more than {round(max(tested) / held):,} characters, because"
            f" {held:.0%} of them are held out, and tests need {max(tested)} of these, got"
            f" {len(text):,}. Use a longer text or a smaller `trained`."
        )

    def window(part: str) -> Callable[[int, Random], TaskText]:
        def write(n: int, random: Random) -> TaskText:
            start = _window(n, len(part), random)
            return TaskText([*part[start : start + n]], [True] * n)

        return write

    return Task(
        name, window(text[:cut]), symbols, trained, least=trained, tested=tested,
        held_out=window(text[cut:]), in_bits=True,
    )  # fmt: skip


def masked(text: Sequence[str], trained: int = 32, share: float = 0.15, most: int = 2_000) -> Task:
    """Make a task: predict masked words of a text from all other words.

    Outcomes are bits per word.

    - `text`: words of a text, whose last tenth is held out for evaluation
    - `trained`: length of training texts, in words
    - `share`: share of words that are masked
    - `most`: size of the vocabulary, the most frequent words

    Devlin et al. 2018, "BERT", arXiv:1810.04805, §3.1; here every masked word becomes <mask>.
    """
    known = [word for word, _ in Counter(text).most_common(most)]
    known_words = {*known}
    words = [word if word in known_words else RARE for word in text]
    cut = round(len(words) * 0.9)
    tested = tuple(round(trained * part) for part in (0.5, 1, 1.25, 1.5, 2, 4))
    if len(words) - cut <= tested[-1]:
        raise ValueError(
            f"`text` must have more than {10 * tested[-1]:,} words, because a tenth of them is held"
            f" out, and tests need {tested[-1]} of these, got {len(words):,}. Use a longer text."
        )

    def window(part: Sequence[str]) -> Callable[[int, Random], TaskText]:
        def write(n: int, random: Random) -> TaskText:
            start = _window(n, len(part), random)
            words = [BEGIN, *part[start : start + n]]
            hidden = {*random.sample(range(1, n + 1), max(1, round(n * _share(share))))}
            symbols = [MASK if place in hidden else word for place, word in enumerate(words)]
            return TaskText(symbols, [place in hidden for place in range(n + 1)], words)

        return write

    return Task(
        "masked", window(words[:cut]), [MASK, RARE, *known], trained,
        least=max(1, trained // 4),
        tested=tested, held_out=window(words[cut:]), in_bits=True, both_ways=True,
    )  # fmt: skip


def sentences(labelled: Sequence[tuple[str, str]], trained: int = 20, most: int = 5_000) -> Task:
    """Make a task: predict the label of a sentence of n words at the sentence's first token.

    - `labelled`: sentences and labels; every tenth is held out for evaluation
    - `trained`: greatest length in training, in words
    - `most`: size of the vocabulary, the most frequent words
    """
    split = [(sentence.lower().split(), label) for sentence, label in labelled]
    labels = sorted({label for _, label in split})
    learned = [example for place, example in enumerate(split) if place % 10]
    known = [
        word for word, _ in Counter(chain.from_iterable(w for w, _ in learned)).most_common(most)
    ]
    by_length: dict[bool, dict[int, list[tuple[list[str], str]]]] = {False: {}, True: {}}
    for place, (words, label) in enumerate(split):
        by_length[place % 10 == 0].setdefault(len(words), []).append((words, label))
    known_words = {*known}

    def reader(held: bool) -> Callable[[int, Random], TaskText]:
        def write(n: int, random: Random) -> TaskText:
            if n not in by_length[held]:
                raise ValueError(
                    "`n` must be the number of words of a sentence in the file, got"
                    f" {n}{', which no held-out sentence has' * held}. Test other lengths."
                )
            words, label = random.choice(by_length[held][n])
            symbols = [BEGIN, *(word if word in known_words else RARE for word in words)]
            return TaskText(symbols, [True, *[False] * n], [_label(label), *symbols[1:]])

        return write

    common = [n for n, held in by_length[True].items() if len(held) >= 5 and n in by_length[False]]
    least = min(
        (n for n in common if all(m in by_length[False] for m in range(n, trained + 1))), default=0
    )
    tested = tuple(sorted(n for n in common if n >= least))
    if not least or trained not in tested or tested[-1] <= trained:
        raise ValueError(
            f"`labelled` must have about 50 sentences of every length up to `trained`={trained}"
            " and of longer ones. Use a file with more sentences, or another `trained`."
        )
    return Task(
        "sentences", reader(False), [RARE, *known, *map(_label, labels)], trained, least,
        _spread(tested), reader(True), both_ways=True,
    )  # fmt: skip


def images(pictures: Tensor, labels: Sequence[int | str], levels: int = 17) -> Task:
    """Make a task: predict the label of an n × n picture from its pixels.

    - `pictures`: grey values (picture, row, column), trained at their own size and tested scaled to
      up to twice that size; every tenth picture is held out for evaluation
    - `labels`: label of each picture
    - `levels`: number of grey levels
    """
    if pictures.ndim != 3 or pictures.shape[1] != pictures.shape[2] or len(pictures) != len(labels):
        raise ValueError(
            "`pictures` must be squares (picture, side, side) with a label for each, got"
            f" {tuple(pictures.shape)} and {len(labels)} labels."
        )
    side, grey = pictures.shape[1], pictures.double()
    low, high = grey.min(), grey.max()
    shades = ((grey - low) / (high - low).clamp_min(1e-12) * (levels - 1)).round().long()

    def reader(held: bool) -> Callable[[int, Random], TaskText]:
        chosen = [place for place in range(len(labels)) if (place % 10 == 0) is held]

        def write(n: int, random: Random) -> TaskText:
            picture = random.choice(chosen)
            nearest = [(2 * x + 1) * side // (2 * n) for x in range(n)]  # centres of pixels
            pixels = shades[picture][nearest][:, nearest].flatten().tolist()
            symbols = [BEGIN, *(f"grey{level}" for level in pixels)]
            answers = [_label(str(labels[picture])), *symbols[1:]]
            return TaskText(symbols, [True, *[False] * n * n], answers)

        return write

    names = [_label(name) for name in sorted({str(label) for label in labels})]
    tested = tuple(sorted({side, round(1.25 * side), round(1.5 * side), 2 * side}))
    return Task(
        "images", reader(False), [*(f"grey{level}" for level in range(levels)), *names], side, side,
        tested, reader(True), both_ways=True, points=_grid,
    )  # fmt: skip


def marks_offset(n: int, random: Random) -> TaskText:
    """Count the columns, −3 … 3, from a red to a blue mark in a picture of n × n patches.

    The rows between the marks are −3 … 3 too, so larger pictures have the offsets of small ones.
    """
    across = random.randint(-OFFSET, OFFSET)
    down = random.choice([rows for rows in range(-OFFSET, OFFSET + 1) if rows or across])
    return _marked(n, down, across, _label(str(across)), random)


def marks_order(n: int, random: Random) -> TaskText:
    """Name the side of the red mark on which the blue mark lies, in a picture of n × n patches.

    The answer is above or below, and left or right. The marks are 1 … n − 1 rows and columns apart,
    so the answer stays the same if the picture is scaled.
    """
    down, across = (random.choice((-1, 1)) * random.randint(1, n - 1) for _ in range(2))
    return _marked(n, down, across, SIDES[down > 0][across > 0], random)


def _marked(n: int, down: int, across: int, answer: str, random: Random) -> TaskText:
    """Write a picture with a red mark, and a blue mark `down` rows and `across` columns from it."""
    row, column = (random.randrange(max(0, -by), n - max(0, by)) for by in (down, across))
    patches = ["empty"] * n * n
    patches[row * n + column] = "red"
    patches[(row + down) * n + column + across] = "blue"
    return TaskText([BEGIN, *patches], [True, *[False] * n * n], [answer, *patches])


def digits() -> Task:
    """Make the image task from scikit-learn's 1,797 handwritten digits, of 8 by 8 pixels."""
    try:
        from sklearn.datasets import load_digits  # type: ignore[import-untyped]
    except ModuleNotFoundError:
        raise LookupError(
            "the task 'images' reads the digits of scikit-learn, which is not installed. Pass your"
            " own pictures, `--images FILE.npz` with `pictures` and `labels`, or"
            f" {how_to_install('images')}"
        ) from None
    dataset = load_digits()
    return images(torch.tensor(dataset.images), dataset.target.tolist())


def load_images(path: Path) -> Task:
    """Make the image task from an .npz file: `pictures` (picture, side, side) and `labels`."""
    try:
        import numpy
    except ModuleNotFoundError:
        raise LookupError(
            f"{path} is read by numpy, which is not installed. Run {how_to_install('images')}"
        ) from None
    try:
        _check_sizes(path)
        with numpy.load(path, allow_pickle=False) as file:
            pictures, labels = file["pictures.npy"], file["labels.npy"]
    except DAMAGED as error:
        raise ValueError(
            f"{path} must be an .npz file with arrays `pictures` and `labels`: {error}"
        ) from None
    return images(torch.tensor(pictures), labels.tolist())


def _check_sizes(path: Path) -> None:
    """Raise ValueError for an .npz file that needs too much memory, before it is unpacked.

    zipfile unpacks at most the bytes that the directory states. numpy allocates the array that its
    header states, so that size must equal the bytes.
    """
    from numpy.lib import format as npy

    readers = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
    with ZipFile(path) as file:
        for name in ("pictures.npy", "labels.npy"):
            size = file.getinfo(name).file_size
            if size > MOST_BYTES:
                raise ValueError(
                    f"{name} must have at most {MOST_BYTES:,} bytes unpacked, got {size:,}."
                    " Use fewer or smaller pictures."
                )
            with file.open(name) as array:
                try:
                    shape, _, dtype = readers[npy.read_magic(array)](array)
                except Exception as error:
                    # numpy evaluates a header as a Python literal, which may raise any error
                    raise ValueError(
                        f"{name} must begin with the header of a NumPy array: {error}"
                    ) from None
                if prod(shape) * dtype.itemsize != size - array.tell():
                    raise ValueError(
                        f"{name} must have as many bytes as its header states, for shape {shape}"
                        f" and dtype {dtype}, got {size - array.tell():,} bytes. Save the array"
                        " again."
                    )


def load_sentences(path: Path) -> Task:
    """Make the sentence task from a file whose lines are a label, a tab and a sentence."""
    try:
        lines = path.read_text("utf-8", errors="replace").splitlines()
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}.") from None
    labelled = []
    for number, line in enumerate(lines, 1):
        match line.split("\t"):
            case [label, sentence]:
                labelled.append((sentence, label))
            case [""]:
                continue
            case parts:
                raise ValueError(
                    f"{path}, line {number}: a line must be a label and a sentence, separated by a"
                    f" tab, got {len(parts)} parts. Correct the line."
                )
    # Files are often sorted by source or label, and every tenth sentence is held out
    Random(0).shuffle(labelled)
    return sentences(labelled)


def _label(name: str) -> str:
    return f"={name}"


def _grid(n: int) -> list[tuple[int, int]]:
    """Return the points (row, column) of the pixels of an n × n image, row by row.

    The first point, (0, 0), is that of <bos>. Rows and columns are counted from 1.
    """
    return [(0, 0), *((row, column) for row in range(1, n + 1) for column in range(1, n + 1))]


def _spread(lengths: Sequence[int], most: int = 12) -> tuple[int, ...]:
    """Select at most `most` evenly spaced lengths, including the first and the last."""
    if len(lengths) <= most:
        return tuple(lengths)
    return tuple(sorted({lengths[round(n * (len(lengths) - 1) / (most - 1))] for n in range(most)}))


QUESTION, STATEMENT = " The pass key?", " The pass key is {}."


def passkey(text: str, trained: int = 256, digits: int = 5) -> Task:
    """Make a task: repeat a number from a random place in a text of n characters.

    - `text`: text around the number
    - `trained`: length of training texts, in characters
    - `digits`: digits of the number
    """
    overhead = len(STATEMENT.format("0" * digits)) + len(QUESTION)
    tested = tuple(trained * part for part in (1, 2, 4, 8))
    if trained <= overhead or len(text) <= tested[-1]:
        raise ValueError(
            f"`trained` must be more than {overhead} characters, the length of a pass key and its"
            f" question, and `text` must have more than {tested[-1]:,} characters, the length of"
            f" the longest test, got {trained} and {len(text):,}. Use a larger `trained` or a"
            " longer text."
        )

    def write(n: int, random: Random) -> Answered:
        key = "".join(random.choices("0123456789", k=digits))
        filling = n - overhead
        if filling < 0:
            raise ValueError(
                f"`n` must be at least {overhead}, the characters of a pass key and its question,"
                f" got {n}. Use longer windows."
            )
        start, place = _window(filling, len(text), random), random.randrange(filling + 1)
        around = text[start : start + filling]
        return [*around[:place], *STATEMENT.format(key), *around[place:], *QUESTION], [*key]

    symbols = sorted({*text, *STATEMENT.format(""), *QUESTION, *DIGITS})
    return Task(
        "passkey", write, symbols, trained, least=trained, tested=tested,
    )  # fmt: skip


NAME = re.compile(r"(?<=[a-z,] )[A-Z][a-z]{3,}(?=[ ,.;:!?'])")  # a capital within a sentence
INITIALS, VOWELS, CONSONANTS = "KQVXZ", "aeiou", "bcdfghjklmnprstvwz"


def names(text: str, trained: int = 64, held: float = 0.1) -> Task:
    """Make a task: complete an invented name that first occurred n letters before.

        Kuvide Zafole by the engagement of Kuvide      graded: u v i d e

    Each text begins with two invented names, with different initials and in random order. One of
    them replaces a name of `text`, n letters after its first occurrence. Near the recurrence only
    the initial differs between the two, so the other letters must be read n letters back.

    - `text`: a text with names, whose last part is held out for evaluation
    - `trained`: greatest distance in training texts, in letters
    - `held`: share of the text that is held out
    """
    text = re.sub(r"\s+", " ", text)
    cut, parts = round(len(text) * (1 - _share(held))), (0.25, 0.5, 0.75, 1, 1.25, 1.5, 1.75, 2)

    def writer(part: str) -> Callable[[int, Random], TaskText]:
        found = [match.start() for match in NAME.finditer(part)]

        def write(n: int, random: Random) -> TaskText:
            first, second = (_invented(initial, random) for initial in random.sample(INITIALS, 2))
            start, name = f"{first} {second} ", random.choice((first, second))
            between = n - len(start) + start.index(name)  # letters of `part`
            far_enough = found[bisect_right(found, n) :]
            if between < 0 or not far_enough:
                raise ValueError(
                    f"`n` must be at least {len(start)}, the length of the two names at the start,"
                    " and less than the number of letters before the last name of the text, got"
                    f" {n}. Test other lengths, or use a longer text."
                )
            place = random.choice(far_enough)
            start += part[place - between : place]
            graded = [False] * (len(start) + 1) + [True] * (len(name) - 1)
            return TaskText([*start, *name], graded)

        return write

    return Task(
        "names", writer(text[:cut]), sorted({*text, *INITIALS, *VOWELS, *CONSONANTS}), trained,
        least=max(1, trained // 4), tested=tuple(round(trained * share) for share in parts),
        held_out=writer(text[cut:]),
    )  # fmt: skip


def _invented(initial: str, random: Random) -> str:
    """Invent a name of six letters, such as Kuvide."""
    return initial + "".join(random.choice(CONSONANTS if k % 2 else VOWELS) for k in range(5))


def _share(share: float) -> float:
    """Check that the held-out share of a text is between 0 and 1, and return it."""
    if not 0 < share < 1:
        raise ValueError(f"`held` must be a share between 0 and 1, got {share}.")
    return share


def find(name: str, source: Path | None = None) -> Task:
    """Return the task with this name, packaged or from a file of the user.

    - `name`: name of a task, or "my_tasks.py:double" for a `Task` in a file
    - `source`: file that the task is made of. For "language", "passkey", "names" and "masked" a
      text, None for the packaged novel; for "images" an .npz file, None for the digits of
      scikit-learn; for "sentences" a file of labelled sentences

    Raises LookupError for an unknown name.
    """
    if name in MADE_OF:
        return MADE_OF[name](source)
    if name in TASKS:
        return TASKS[name]
    if is_own(name):
        task = named(name)
        if isinstance(task, Task):
            return task
        raise LookupError(f"{name} must be a `posenc.lab.study.tasks.Task`, got {brief(task)}.")
    near = get_close_matches(name, [*TASKS, *MADE_OF], 1, 0.6)
    hint = (
        f"did you mean {near[0]}?"
        if near
        else f"known are {', '.join([*TASKS, *MADE_OF])}, and your own, as my_tasks.py:NAME."
    )
    raise LookupError(f"no task is called {name!r}: {hint}")


def _letters(source: Path | None) -> str:
    if source is None:
        return novel_letters()
    try:
        return source.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{source} cannot be read as a text in UTF-8: {error}") from None


def _sentences(source: Path | None) -> Task:
    if source is None:
        raise LookupError(
            "the task 'sentences' needs a file of labelled sentences. Pass `--text FILE`, whose"
            " lines are a label, a tab and a sentence."
        )
    return load_sentences(source)


MADE_OF: dict[str, Callable[[Path | None], Task]] = {
    "language": lambda source: language(_letters(source)),
    "passkey": lambda source: passkey(_letters(source)),
    "names": lambda source: names(_letters(source)),
    "masked": lambda source: masked(parse("text", _letters(source)).words),
    "sentences": _sentences,
    "images": lambda source: digits() if source is None else load_images(source),
}

TASKS: dict[str, Task] = {
    task.name: task
    for task in (
        Task("copy", copy, WORDS),
        Task("copy-unique", copy_unique, WORDS),
        Task("copy-unique-4096", unique(MANY_WORDS), MANY_WORDS, 256),
        Task("copy-repeat", copy_repeat, WORDS),
        Task("copy-constant", copy_constant, WORDS),
        Task("reverse", reverse, WORDS),
        Task("sort", sort, NUMBERS),
        Task("mode", mode, NUMBERS[:10]),
        Task("count", counting, WORDS),
        Task("addition", addition, [*DIGITS, "+", "="], 10),
        Task("hinted-addition", hinted_addition, [*DIGITS, "+", "=", *HINTS], 10),
        Task("parity", parity, BITS),
        Task("recall", recall, [*KEYS, *VALUES, *WORDS], 32, tested=(16, 32, 64, 128, 256, 512)),
        Task(
            "flip-flop", flip_flop, ["write", "ignore", "read", *BITS], 32, least=2,
            tested=(16, 32, 48, 64, 128),
        ),
        Task("variables", variables, [*KEYS, *VALUES, *WORDS, "="], 32),
        *(
            Task(
                name, write, [*PATCHES, *answers], 8, 8, (8, 12, 16), both_ways=True, points=_grid
            )
            for name, write, answers in (
                ("marks-offset", marks_offset, map(_label, map(str, range(-OFFSET, OFFSET + 1)))),
                ("marks-order", marks_order, chain(*SIDES)),
            )
        ),
    )
} | {
    # Both have one name, so that they train equal models
    f"both-{kind}": Task("copy-both", copy_both, WORDS, held_out=held_out)
    for kind, held_out in (("unique", copy_unique), ("repeat", copy_repeat))
}  # fmt: skip
