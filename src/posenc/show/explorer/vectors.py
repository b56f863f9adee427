"""Make small word vectors for the page from a model's embedding table.

The words are the first whole words of the vocabulary, whose order is roughly their frequency. Their
rows are projected to the directions that preserve most of their dot products (the leading right
singular vectors of all rows), scaled to a mean square of 1 like seeded vectors, and rounded to 8
bits.
"""

import base64
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TypedDict

import torch
from torch import Tensor

from posenc.models.files.errors import ModelError
from posenc.models.files.folder import find_files, inside
from posenc.models.files.strict import read_json
from posenc.models.weights import open_weights

TOKENIZER, MOST_TOKENIZER = "tokenizer.json", 2**27  # bytes
MOST_WORDS, LEVELS = 2_000, 127
# Words of the sentences on the page
ALWAYS = "the", "old", "dog", "chased", "another", "bites", "man"
# Marks at the beginning of a word, in byte-level and in sentencepiece vocabularies
BEGIN = "Ġ", "▁"
WORD = re.compile(r"[a-z]{2,}|[ai]")
TABLE = re.compile(  # names of embedding tables, as transformers and llama.cpp call them
    r"(?:.*\.)?(?:embed_tokens|word_embeddings|tok_embeddings|wte|token_embd|embed_in|shared)\.weight"
)


class WordVectors(TypedDict):
    """Word vectors from a model. Words of the page that the model lacks have random vectors."""

    model: str
    words: list[str]
    width: int  # channels of a word vector
    of: int  # channels of the model
    share: float  # share of the squared length of all rows that is kept
    scale: float  # value of one unit of `int8`
    int8: str  # (word, channel), row by row, as bytes


def has_words(path: Path) -> bool:
    """Test whether a model's folder has both a tokenizer and weights."""
    if not (path.is_dir() and (path / TOKENIZER).exists()):
        return False
    return find_files(path).format is not None


def vectors(folder: Path, model: str, width: int) -> WordVectors:
    """Return vectors of a model's most common words, reduced to `width` channels.

    Raises ModelError for a vocabulary or a table that cannot be read.
    """
    tokens = words(vocabulary(inside(folder, TOKENIZER)))
    table = embedding(folder)
    if not tokens or max(tokens.values()) >= len(table):
        why = f"has {len(tokens)} words that the embedding table of {len(table)} rows could hold"
        raise ModelError(folder / TOKENIZER, "", why, allowed="ids below its rows")
    small, share = projected(table[[*tokens.values()]].double(), width)
    scale = float(small.abs().max()) / LEVELS
    steps = (small / (scale or 1.0)).round().to(torch.int8)
    return {
        "model": model,
        "words": [*tokens],
        "width": width,
        "of": table.shape[1],
        "share": round(share, 4),
        "scale": scale,
        "int8": base64.b64encode(bytes(steps.flatten().view(torch.uint8).tolist())).decode(),
    }


def vocabulary(file: Path) -> dict[str, int]:
    """Read tokens and their ids from a tokenizer.json."""
    model = read_json(file, most=MOST_TOKENIZER).get("model")
    vocab = model.get("vocab") if isinstance(model, Mapping) else None
    if isinstance(vocab, Mapping):
        vocab = {token: at for token, at in vocab.items() if isinstance(at, int) and at >= 0}
    elif isinstance(vocab, Sequence) and not isinstance(vocab, str):
        vocab = {
            str(entry[0]): at for at, entry in enumerate(vocab) if isinstance(entry, list) and entry
        }
    else:
        raise ModelError(
            file, "model.vocab", "must be a dict from tokens to ids, or a list of tokens", got=vocab
        )
    return dict(sorted(vocab.items(), key=lambda entry: entry[1]))


def words(tokens: Mapping[str, int]) -> dict[str, int]:
    """Map words to token ids: first the words of the page's sentences, then common words.

    If some tokens are marked as the beginning of a word, unmarked tokens may be parts of words and
    are left out.
    """
    marked = [token for token in tokens if token.startswith(BEGIN)]
    begins = {token[1:]: token for token in marked} or {token: token for token in tokens}
    full_words = [word for word in begins if WORD.fullmatch(word)]
    own = [word for word in ALWAYS if word in begins]
    chosen: Iterable[str] = dict.fromkeys([*own, *full_words])
    return {word: tokens[begins[word]] for word in [*chosen][:MOST_WORDS]}


def embedding(folder: Path) -> Tensor:
    """Read a model's embedding table (token, channel) from its folder."""
    weights = open_weights(find_files(folder))
    tables = [
        name
        for name, info in weights.infos.items()
        if TABLE.fullmatch(name) and len(info.shape) == 2
    ]
    if not tables:
        raise ModelError(
            folder, "", "has no embedding table with a known name such as `wte.weight`"
        )
    return weights[min(tables, key=len)]


def projected(rows: Tensor, width: int) -> tuple[Tensor, float]:
    """Project vectors to their first `width` singular directions, scaled to mean square 1.

    Returns the rows and the share of their squared length that is preserved. A narrower table is
    padded with zeros, which change no dot product.
    """
    _, lengths, directions = torch.linalg.svd(rows, full_matrices=False)
    kept = rows @ directions[:width].T
    share = float(lengths[:width].square().sum() / lengths.square().sum())
    kept = torch.nn.functional.pad(kept, (0, width - kept.shape[1]))
    size = kept.square().mean().sqrt()
    return kept / (size if size > 0 else 1.0), share
