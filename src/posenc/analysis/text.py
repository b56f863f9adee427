"""Split a text into words, and compute word vectors without downloading a model.

    PPMI(w, c) = max(0, ln( n(w, c) n / (n(w) n(c)) ))      n(w, c): c within 4 words of w
    PPMI ≈ U S Uᵀ,   vector(w) = row of U √S, scaled to length √width

Words in similar contexts have similar vectors; words outside of the 3,000 most common ones have
random vectors. Levy & Goldberg 2014, "Neural Word Embedding as Implicit Matrix Factorization".
"""

import lzma
import os
import re
from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from importlib.resources import files
from itertools import accumulate, pairwise
from pathlib import Path

import torch
from torch import Tensor

NOVEL = "Jane Austen, Northanger Abbey"
VOCABULARY = 3_000
REACH = 4  # words of context on either side
MOST_BYTES = 32 * 2**20  # bytes; longer files are truncated
FEWEST_WORDS = 32  # words
MOST_DISTINCT = 2**19  # words; their vectors of 256 channels take half a GiB


@dataclass(frozen=True)
class Text:
    """A text split into words and punctuation marks, with the starts of its paragraphs."""

    source: str
    words: list[str]  # words in lower case, and punctuation marks
    paragraphs: list[int]  # indices of the first words of paragraphs

    @cached_property
    def distinct(self) -> list[str]:
        """The distinct words of the text, with the most common first."""
        return [word for word, _ in Counter(self.words).most_common()]

    @cached_property
    def ids(self) -> Tensor:
        """The index of each word of the text in the list of distinct words, as a tensor."""
        number = {word: n for n, word in enumerate(self.distinct)}
        return torch.tensor([number[word] for word in self.words])

    def sentences(self, shortest: int = 6, longest: int = 24) -> list[slice]:
        """Return a slice for each sentence that has from `shortest` to `longest` words."""
        ends = {n + 1 for n, word in enumerate(self.words) if word in ".!?"}
        cuts = sorted({0, *self.paragraphs, *ends})
        spans = [slice(a, b) for a, b in pairwise(cuts) if b in ends]
        return [span for span in spans if shortest <= span.stop - span.start <= longest]

    def windows(self, size: int, count: int) -> Tensor:
        """Return the ids of `count` windows of `size` words, evenly spaced: (window, token).

        A short text gives fewer or shorter windows.
        """
        count = max(1, min(count, len(self.words) // size))
        size = min(size, len(self.words))
        starts = torch.linspace(0, len(self.words) - size, count).long()
        return self.ids[starts.unsqueeze(-1) + torch.arange(size)]

    def vectors(self, width: int, seed: int = 0) -> Tensor:
        """Return vectors of the distinct words, (word, width), each with norm √width."""
        known = min(VOCABULARY, len(self.distinct))
        generator = torch.Generator().manual_seed(seed)
        vectors = torch.randn(len(self.distinct), width, generator=generator)
        u, s = _factors(_ppmi(self.ids, known), min(width, known), seed)
        vectors[:known, : len(s)] = u * s.sqrt()
        vectors[:known, len(s) :] = 0
        vectors[vectors == 0] = 1e-6
        # In place, because the vectors of a long text are large
        vectors /= vectors.norm(dim=-1, keepdim=True)
        vectors *= width**0.5
        return vectors


def novel() -> Text:
    """Return the words of the novel that is packaged with posenc, "Northanger Abbey"."""
    return parse(NOVEL, novel_letters())


def novel_letters() -> str:
    """Return the letters of the packaged novel as one string."""
    packed = (files("posenc.analysis") / "northanger_abbey.txt.xz").read_bytes()
    return lzma.decompress(packed).decode()


def letters_of(path: Path) -> str:
    """Return the text of a UTF-8 file; raise ValueError if the file cannot be read as UTF-8."""
    try:
        with open(path, "rb", opener=_without_waiting) as file:
            content = file.read(MOST_BYTES)
    except (FileNotFoundError, ValueError):
        # A ValueError means that the name has a zero byte
        raise ValueError(f"there is no file {path}") from None
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}") from None
    try:
        if b"\0" in content:
            raise ValueError(
                f"{path} is not a text, because it contains zero bytes. Pass plain text"
            )
        whole = len(content) < MOST_BYTES
        return content.decode("utf-8-sig", errors="strict" if whole else "ignore")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{path} is not a text in UTF-8, because byte {error.start:,} is"
            f" 0x{content[error.start]:02x}. Convert the file to UTF-8"
        ) from None


def load_text(path: Path) -> Text:
    """Return the words of a UTF-8 file; raise ValueError if the text cannot be read or used."""
    parsed = parse(path.name, letters_of(path))
    if len(parsed.words) < FEWEST_WORDS:
        raise ValueError(
            f"{path} must have at least {FEWEST_WORDS} words, got {len(parsed.words)}. Pass a"
            " longer text"
        )
    distinct = len(set(parsed.words))
    if distinct > MOST_DISTINCT:
        raise ValueError(
            f"{path} must have at most {MOST_DISTINCT:,} distinct words, because each needs a"
            f" vector, got {distinct:,}. Pass a shorter text"
        )
    return parsed


def _without_waiting(path: str, flags: int) -> int:
    """Open a file without blocking; a pipe that has no writer is then read as an empty file."""
    handle = os.open(path, flags | getattr(os, "O_NONBLOCK", 0))
    if hasattr(os, "O_NONBLOCK"):
        os.set_blocking(handle, True)
    return handle


def parse(source: str, text: str) -> Text:
    """Split a text into words; an empty line ends a paragraph."""
    paragraphs = [words(paragraph) for paragraph in re.split(r"\n\s*\n", text)]
    starts = accumulate((len(paragraph) for paragraph in paragraphs), initial=0)
    return Text(source, [word for paragraph in paragraphs for word in paragraph], list(starts))


def words(text: str) -> list[str]:
    """Return words and punctuation marks in lower case.

    >>> words("It isn't so, Dog!")
    ['it', "isn't", 'so', ',', 'dog', '!']
    """
    return re.findall(r"\w+(?:['’]\w+)*|[^\w\s]", text.lower())


def _ppmi(ids: Tensor, known: int) -> Tensor:
    counts = torch.zeros(known, known)
    for gap in range(1, REACH + 1):
        a, b = ids[:-gap], ids[gap:]
        common = (a < known) & (b < known)
        pair = a[common] * known + b[common]
        counts += torch.bincount(pair, minlength=known**2).view(known, known)
    counts = counts + counts.T
    totals = counts.sum(0)
    expected = totals.unsqueeze(0) * totals.unsqueeze(1) / counts.sum().clamp_min(1)
    return (counts / expected.clamp_min(1e-12)).clamp_min(1).log()


def _factors(matrix: Tensor, rank: int, seed: int) -> tuple[Tensor, Tensor]:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        u, s, _ = torch.svd_lowrank(matrix, q=rank, niter=2)
    return u, s
