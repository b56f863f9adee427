"""Tasks for a decoder, each with a length n: train on short ones, test on long ones.

A task writes texts of symbols and says which of them are answers. Only those are learned and
graded; a text counts as right when all its answers are. Adding one's own is one function:

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

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import cached_property
from itertools import chain
from random import Random
from typing import NamedTuple

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from posenc.analysis.text import novel_letters
from posenc.core.arguments import count, shown
from posenc.user_code import is_own, named

PAD, BEGIN, SEPARATOR, END = "<pad>", "<bos>", "<sep>", "<eos>"
MARKS = (PAD, BEGIN, SEPARATOR, END)
WORDS = tuple(f"w{n}" for n in range(100))
NUMBERS = tuple(f"{n:02}" for n in range(50))
DIGITS = tuple("0123456789")
HINTS = tuple(f"#{n}" for n in range(128))  # places of digits: one name for each power of ten
KEYS = tuple(f"k{n}" for n in range(128))
VALUES = tuple(f"v{n}" for n in range(128))
BITS = ("0", "1")

Symbols = Sequence[str]
Answered = tuple[Symbols, Symbols]  # a prompt and its answer, which is all graded


class Text(NamedTuple):
    """Symbols in the order in which they are read, and whether each is an answer."""

    symbols: list[str]
    graded: list[bool]


class Batch(NamedTuple):
    """Texts filled up to the longest; what fills them is never graded."""

    tokens: Int[Tensor, "text token"]
    graded: Bool[Tensor, "text token"]
    lengths: list[int]  # tokens of each text

    @property
    def inputs(self) -> Int[Tensor, "text token"]:
        """The tokens that the model reads: all but the last."""
        return self.tokens[:, :-1]

    @property
    def targets(self) -> Int[Tensor, "text token"]:
        """The token that comes next after each input."""
        return self.tokens[:, 1:]

    @property
    def answers(self) -> Bool[Tensor, "text token"]:
        """The mask of the `targets` that are graded."""
        return self.graded[:, 1:]


@dataclass(frozen=True)
class Task:
    """`write(n, random)` gives a prompt and its answer, or a `Text` with answers anywhere.

    In training n is drawn from `least` … `trained`, all alike. `held_out` writes the texts of
    evaluation, where they must come from elsewhere than those of training.
    """

    name: str
    write: Callable[[int, Random], "Answered | Text"]
    symbols: Symbols
    trained: int = 20
    least: int = 1
    tested: tuple[int, ...] = ()  # lengths of evaluation; empty: 10 of them up to 2 · trained
    held_out: Callable[[int, Random], "Answered | Text"] | None = None
    says: str = ""  # what is to be learned, for tables and pages
    chance: float = 0.0  # share of texts that guessing gets right
    in_bits: bool = False  # every symbol is an answer, graded in bits

    def __post_init__(self) -> None:
        count(self.least, "least", 0)
        count(self.trained, "trained", max(1, self.least))
        for n in self.tested:
            count(n, "tested", self.least)
        twice = [symbol for symbol, times in Counter(self.vocabulary).items() if times > 1]
        if twice:
            raise ValueError(
                f"`symbols` of the task {self.name!r} must differ, from one another and from"
                f" {', '.join(MARKS)}: {', '.join(map(repr, twice[:3]))} is there twice."
            )

    @cached_property
    def vocabulary(self) -> tuple[str, ...]:
        """The marks, `<pad>` first, and the task's own symbols."""
        return (*MARKS, *self.symbols)

    @cached_property
    def _number(self) -> dict[str, int]:
        return {symbol: n for n, symbol in enumerate(self.vocabulary)}

    @property
    def lengths(self) -> tuple[int, ...]:
        """The n of evaluation: as given, or tenths of twice the trained length."""
        tenths = {max(self.least, round(2 * self.trained * part / 10)) for part in range(1, 11)}
        return self.tested or tuple(sorted(tenths))

    def text(self, n: int, random: Random, held_out: bool = False) -> Text:
        """One text of length n, from `<bos>` to `<eos>`."""
        count(n, "n", self.least)
        write = self.held_out if held_out and self.held_out is not None else self.write
        written = write(n, random)
        if isinstance(written, Text):
            return Text([BEGIN, *written.symbols], [False, *written.graded])
        prompt, answer = written
        symbols = [BEGIN, *prompt, *answer, END]
        return Text(symbols, [False] * (1 + len(prompt)) + [True] * (len(answer) + 1))

    def batch(self, sizes: Sequence[int], random: Random, held_out: bool = False) -> Batch:
        """A text of each size, numbered by `vocabulary`, filled on the right."""
        texts = [self.text(n, random, held_out) for n in sizes]
        longest = max((len(text.symbols) for text in texts), default=0)
        tokens = torch.zeros(len(texts), longest, dtype=torch.long)
        graded = torch.zeros(len(texts), longest, dtype=torch.bool)
        for row, text in enumerate(texts):
            tokens[row, : len(text.symbols)] = torch.tensor(self.encode(text.symbols))
            graded[row, : len(text.symbols)] = torch.tensor(text.graded)
        return Batch(tokens, graded, [len(text.symbols) for text in texts])

    def at(self, trained: int | None = None, tested: Sequence[int] = ()) -> "Task":
        """The same task for other lengths; one that has a single length of training keeps that."""
        n = self.trained if trained is None else count(trained, "trained")
        least = n if self.least == self.trained else min(self.least, n)
        lengths = tuple(tested) or (self.tested if trained is None else self._scaled(n))
        return replace(self, trained=n, least=least, tested=lengths)

    @cached_property
    def longest(self) -> int:
        """Tokens of the longest text of training."""
        return len(self.text(self.trained, Random(0)).symbols)

    def _scaled(self, trained: int) -> tuple[int, ...]:
        """The lengths of evaluation, as many times the trained one as before."""
        return tuple(sorted({round(n * trained / self.trained) for n in self.tested}))

    def training(self, texts: int, random: Random) -> Batch:
        """Texts of lengths drawn from `least` … `trained`."""
        texts = count(texts, "texts")
        return self.batch([random.randint(self.least, self.trained) for _ in range(texts)], random)

    def encode(self, symbols: Symbols) -> list[int]:
        """The numbers of symbols. Raises ValueError for one that the task does not know."""
        try:
            return [self._number[symbol] for symbol in symbols]
        except KeyError as unknown:
            raise ValueError(
                f"the task {self.name!r} wrote {shown(unknown.args[0])}, which is not among its"
                " `symbols`: add it there."
            ) from None

    def decode(self, tokens: Sequence[int]) -> list[str]:
        """The symbols of numbers, without the filling."""
        return [self.vocabulary[n] for n in tokens if n]


def copy(n: int, random: Random) -> Answered:
    words = random.choices(WORDS, k=n)
    return [*words, SEPARATOR], words


def copy_constant(n: int, random: Random) -> Answered:
    words = [random.choice(WORDS)] * n
    return [*words, SEPARATOR], words


def reverse(n: int, random: Random) -> Answered:
    words = random.choices(WORDS, k=n)
    return [*words, SEPARATOR], words[::-1]


def sort(n: int, random: Random) -> Answered:
    numbers = random.choices(NUMBERS, k=n)
    return [*numbers, SEPARATOR], sorted(numbers)


def mode(n: int, random: Random) -> Answered:
    """The commonest of n symbols; drawn anew until there is only one."""
    while True:
        numbers = random.choices(NUMBERS[:10], k=n)
        ranked = Counter(numbers).most_common(2)
        if len(ranked) == 1 or ranked[0][1] > ranked[1][1]:
            return [*numbers, SEPARATOR], [ranked[0][0]]


def counting(n: int, random: Random) -> Answered:
    """Count from a to b, n words on a circle of a hundred."""
    first = random.randrange(len(WORDS))
    steps = [WORDS[(first + step) % len(WORDS)] for step in range(n)]
    return [steps[0], steps[-1], SEPARATOR], steps


def parity(n: int, random: Random) -> Answered:
    bits = random.choices(BITS, k=n)
    return [*bits, SEPARATOR], [BITS[bits.count("1") % 2]]


def addition(n: int, random: Random) -> Answered:
    """Two numbers of n digits and their sum of n + 1, all with the last digit first."""
    one, other = (random.randrange(10 ** (n - 1) if n > 1 else 0, 10**n) for _ in range(2))
    written = lambda value, size: list(f"{value:0{size}}"[::-1])  # noqa: E731
    return [*written(one, n), "+", *written(other, n), "="], written(one + other, n + 1)


def hinted_addition(n: int, random: Random) -> Answered:
    """The same, before each digit the name of its power of ten; the first name is drawn."""
    if n + 1 > len(HINTS):
        raise ValueError(
            f"`n` must be below {len(HINTS)} in addition with hints, which has a name for each"
            f" digit of a sum, got {n}: test shorter numbers."
        )
    prompt, answer = addition(n, random)
    start = random.randrange(len(HINTS) - n)
    hint = lambda digits: chain.from_iterable(zip(HINTS[start:], digits, strict=False))  # noqa: E731
    one, other = prompt[:n], prompt[n + 1 : -1]
    return [*hint(one), "+", *hint(other), "="], [*hint(answer)]


def recall(n: int, random: Random, pairs: int = 6) -> Text:
    """Keys with values, then the keys again, each followed by its value: the answers.

    The n symbols between hold noise, so the distance grows with n and what is to be kept does not.
    """
    keys, values = random.sample(KEYS, pairs), random.choices(VALUES, k=pairs)
    said = [*chain.from_iterable(zip(keys, values, strict=True)), *random.choices(WORDS, k=n)]
    asked = random.sample([*zip(keys, values, strict=True)], pairs)
    symbols = [*said, SEPARATOR, *chain.from_iterable(asked)]
    graded = [False] * (len(said) + 1) + [False, True] * pairs
    return Text(symbols, graded)


def flip_flop(n: int, random: Random, ignored: float = 0.8) -> Text:
    """n orders with a bit each: write it, ignore it, or read what was written last: the answers."""
    symbols, graded, memory = [], [], random.choice(BITS)
    for step in range(n):
        if step == 0:  # so that there is something to read
            order = "write"
        elif step == n - 1:
            order = "read"
        else:
            rest = (1 - ignored) / 2
            order = random.choices(("write", "ignore", "read"), (rest, ignored, rest))[0]
        bit = memory if order == "read" else random.choice(BITS)
        memory = bit if order == "write" else memory
        symbols += [order, bit]
        graded += [False, order == "read"]
    return Text(symbols, graded)


def language(text: str, name: str = "language", trained: int = 64, held: float = 0.1) -> Task:
    """n characters of a text, each to be predicted from those before; the last part is held out."""
    symbols = sorted(set(text))
    tested = tuple(round(trained * part) for part in (1, 1.25, 1.5, 2, 4, 8))
    cut = round(len(text) * (1 - _share(held)))
    if len(text) - cut <= max(tested) or cut <= max(tested):
        raise ValueError(
            f"`text` must have more than {round(max(tested) / held):,} characters for windows of"
            f" {max(tested)}, of which {held:.0%} are held out, got {len(text):,}: take a longer"
            " text or a smaller `trained`."
        )

    def window(part: str) -> Callable[[int, Random], Text]:
        def write(n: int, random: Random) -> Text:
            start = random.randrange(len(part) - n + 1)
            return Text([*part[start : start + n]], [True] * n)

        return write

    return Task(
        name, window(text[:cut]), symbols, trained, least=trained, tested=tested,
        held_out=window(text[cut:]), says="predict the next character", in_bits=True,
    )  # fmt: skip


QUESTION, STATEMENT = " The pass key?", " The pass key is {}."


def passkey(text: str, trained: int = 256, digits: int = 5) -> Task:
    """A number planted anywhere in n characters of a text, and asked for at the end."""
    overhead = len(STATEMENT.format("0" * digits)) + len(QUESTION)
    tested = tuple(trained * part for part in (1, 2, 4, 8))
    if trained <= overhead or len(text) <= tested[-1]:
        raise ValueError(
            f"a pass key needs windows of more than {overhead} characters, and a text of more than"
            f" {tested[-1]:,}: got `trained`={trained} and {len(text):,} characters."
        )

    def write(n: int, random: Random) -> Answered:
        key = "".join(random.choices("0123456789", k=digits))
        filling = n - overhead
        start, place = random.randrange(len(text) - filling + 1), random.randrange(filling + 1)
        around = text[start : start + filling]
        return [*around[:place], *STATEMENT.format(key), *around[place:], *QUESTION], [*key]

    symbols = sorted({*text, *STATEMENT.format(""), *QUESTION, *DIGITS})
    return Task(
        "passkey", write, symbols, trained, least=trained, tested=tested,
        says="say the number that was planted in a text", chance=10.0**-digits,
    )  # fmt: skip


def _share(share: float) -> float:
    """A share between 0 and 1, neither of them."""
    if not 0 < share < 1:
        raise ValueError(f"`held` must be a share between 0 and 1, got {share}.")
    return share


def find(name: str, text: str | None = None) -> Task:
    """The task of that name; "language" and "passkey" on a text, the packaged novel unless given.

    One's own is `my_tasks.py:double`: a `Task` in a file. Raises LookupError for others.
    """
    if name in ("language", "passkey"):
        text = novel_letters() if text is None else text
        return language(text) if name == "language" else passkey(text)
    if name in TASKS:
        return TASKS[name]
    if is_own(name):
        task = named(name)
        if isinstance(task, Task):
            return task
        raise LookupError(f"{name} must be a `posenc.study.tasks.Task`, it is {shown(task)}.")
    near = get_close_matches(name, [*TASKS, "language", "passkey"], 1, 0.6)
    hint = f"did you mean {near[0]}?" if near else "own ones are named my_tasks.py:NAME."
    raise LookupError(f"no task is called {name!r}: {hint}")


TASKS: dict[str, Task] = {
    task.name: task
    for task in (
        Task("copy", copy, WORDS, says="say the words again"),
        Task("copy-constant", copy_constant, WORDS, says="say one word as often as it was said"),
        Task("reverse", reverse, WORDS, says="say the words again, the last first"),
        Task("sort", sort, NUMBERS, says="say the numbers in order"),
        Task("mode", mode, NUMBERS[:10], says="say the commonest symbol", chance=0.1),
        Task("count", counting, WORDS, says="count from one word to another", least=1),
        Task("addition", addition, [*DIGITS, "+", "="], 10, says="add, the last digit first"),
        Task(
            "hinted-addition", hinted_addition, [*DIGITS, "+", "=", *HINTS], 10,
            says="add, each digit with the name of its place",
        ),
        Task("parity", parity, BITS, says="odd or even: must fail", chance=0.5),
        Task(
            "recall", recall, [*KEYS, *VALUES, *WORDS], 32, tested=(16, 32, 64, 128, 256, 512),
            says="say the value that came with each key",
        ),
        Task(
            "flip-flop", flip_flop, ["write", "ignore", "read", *BITS], 32, least=2,
            tested=(16, 32, 48, 64, 128), says="say the bit that was written last",
        ),
    )
}  # fmt: skip
