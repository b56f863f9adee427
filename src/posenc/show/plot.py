"""Functions that draw figures in Python; each returns a `Picture`.

    posenc.plot.rows("sinusoidal")                     displayed in a notebook
    posenc.plot.similarity(RoPE(64)).save("rope.svg")
    posenc.plot.pictures(posenc.inspect("folder"))     all figures of a result, by name
    posenc.plot.load("score-against-distance.json")    a figure that the explorer saved

An encoding is an `Encoding` or a name of the catalogue.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import torch

from posenc.analysis import clocks as analysis_clocks
from posenc.analysis import similarity as similarities
from posenc.analysis import toy
from posenc.analysis.text import words
from posenc.catalog import CATALOG, create, find
from posenc.core.encoding import Encoding
from posenc.core.masks import causal as earlier
from posenc.lab.compare.portrait import attention_weights, without
from posenc.properties.probe import Probe
from posenc.support.arguments import brief, count
from posenc.support.extras import how_to_install

try:
    from posenc.show.report.drawing import figure_json
    from posenc.show.report.figures import attention as attention_figures
    from posenc.show.report.figures import clocks as clock_figures
    from posenc.show.report.figures import places as places_figures
    from posenc.show.report.figures import positions
    from posenc.show.report.picture import Picture, pictures
except ImportError as error:  # pragma: no cover
    raise ImportError(
        f"`posenc.show.plot` needs the extra `report` ({error.name} is missing):"
        f" {how_to_install('report')}"
    ) from error

__all__ = [
    "attention",
    "bias",
    "channels",
    "clocks",
    "load",
    "pictures",
    "places",
    "rows",
    "similarity",
]

DIM, HEADS = 64, 4


def rows(
    encoding: Encoding | str,
    tokens: int = 64,
    of: Literal["values", "angle", "cos"] = "values",
) -> Picture:
    """Draw the position vectors of an encoding as a heat map.

    The vector of a position is the one that the encoding adds, or a query that it rotates.

    - `encoding`: an `Encoding`, or a name of the catalogue
    - `tokens`: positions to draw, 64 by default
    - `of`: "values"; or, for encodings that rotate pairs of channels, "angle" for the angle of each
      pair, from −π to π, or "cos" for its cosine

    Raises ValueError for encodings that act on scores alone, and for angles of encodings that do
    not rotate.

    >>> type(rows("sinusoidal")).__name__
    'Picture'
    """
    if of not in ("values", "angle", "cos"):
        raise ValueError(
            f'`of` must be "values", "angle" or "cos", got {brief(of)}. Use one of these.'
        )
    if of == "values":
        return Picture(positions.encoding(_name(encoding), _row_values(encoding, tokens)))
    instance, pos = _turns(encoding, "`plot.rows` with angles"), range(count(tokens, "tokens", 2))
    angle = analysis_clocks.angles(instance, pos)
    if not angle.any():
        raise ValueError(_turns_nothing(encoding, "`plot.rows` with angles"))
    values = angle if of == "angle" else angle.cos()
    return Picture(positions.angles(_name(encoding), values.tolist(), of))


def channels(encoding: Encoding | str, tokens: int = 128, channels: Sequence[int] = ()) -> Picture:
    """Draw curves of single channels of an encoding's position vectors, by position.

    - `encoding`: an `Encoding`, or a name of the catalogue
    - `tokens`: positions to draw, 128 by default
    - `channels`: indices of channels; if empty, a few are chosen

    Raises ValueError for encodings that act on scores alone, and for channels that do not exist.

    >>> type(channels("rope", channels=[0, 2])).__name__
    'Picture'
    """
    rows = _row_values(encoding, tokens)
    for channel in channels:
        if not 0 <= channel < len(rows[0]):
            raise ValueError(
                f"`channels` must be from 0 to {len(rows[0]) - 1}, got {brief(channel)}."
                " Pass indices in this range."
            )
    return Picture(positions.channels(_name(encoding), rows, channels))


def _row_values(encoding: Encoding | str, tokens: int) -> list[list[float]]:
    instance = _encoding(encoding, heads=1)
    probe = Probe(instance, heads=None if instance.heads else 1)
    with torch.no_grad():
        values = probe.rows(probe.line(count(tokens, "tokens")))
    if values is None:
        raise ValueError(_no_rows(encoding, instance))
    return values.tolist()


def similarity(encoding: Encoding | str, tokens: int = 64) -> Picture:
    """Draw the similarity of every two positions: dot product and cosine of their vectors.

    - `encoding`: an `Encoding`, or a name of the catalogue
    - `tokens`: positions to draw, 64 by default

    Raises ValueError for encodings that act on scores alone.

    >>> type(similarity("rope", tokens=8)).__name__
    'Picture'
    """
    instance = _encoding(encoding, heads=1)
    alike = similarities.between(instance, count(tokens, "tokens", 2))
    if alike is None:
        raise ValueError(_no_rows(encoding, instance))
    return Picture(positions.similarity(_name(encoding), alike))


def bias(encoding: Encoding | str, tokens: int = 64) -> Picture:
    """Draw the bias of the last query against the distance of the key.

    - `encoding`: an `Encoding`, or a name of the catalogue
    - `tokens`: distances to draw, 64 by default

    Raises ValueError for encodings without a bias, or with one that depends on queries and keys.

    >>> type(bias("alibi")).__name__
    'Picture'
    """
    instance, pos = _encoding(encoding), torch.arange(count(tokens, "tokens", 2))
    if "on_scores" not in instance.acts_on:
        raise ValueError(
            f"`encoding` must have a bias, as ALiBi, T5 and KERPLE do, got {_name(encoding)}, which"
            " adds nothing to scores. Use `plot.rows`."
        )
    if instance.axes > 1:
        raise ValueError(
            f"`encoding` must have one axis, got {_name(encoding)}, which has {instance.axes}"
            " axes. Pass a bias for text, such as 'alibi'."
        )
    try:
        with torch.no_grad():
            scores = instance(pos[-1:], pos)[0, :, 0].flip(-1)  # (head, tokens back)
    except TypeError as error:
        raise ValueError(
            f"`encoding` must have a bias that depends on positions alone, got {_name(encoding)},"
            " whose bias depends on queries and keys. Use `plot.attention`."
        ) from error
    learned = ", untrained" if isinstance(encoding, str) and [*instance.parameters()] else ""
    return Picture(positions.bias(_name(encoding) + learned, scores.tolist()))


def clocks(encoding: Encoding | str = "rope", tokens: int = 48) -> Picture:
    """Draw the rotary pairs of a query and a key as clock hands that turn with the position.

    The angle between both hands of a clock is the same at all positions.

    - `encoding`: an `Encoding`, or a name of the catalogue; RoPE by default
    - `tokens`: positions to move through, 48 by default

    Raises ValueError for encodings that do not rotate.

    >>> type(clocks(tokens=4)).__name__
    'Picture'
    """
    instance = _turns(encoding, "`plot.clocks`", dim=16)
    moving = analysis_clocks.clocks(instance, range(count(tokens, "tokens", 2)))
    return Picture(clock_figures.turning(_name(encoding), moving))


def _turns(encoding: Encoding | str, asked: str, **sizes: int) -> Encoding:
    """Make an encoding, and check that its rotation depends on positions alone.

    Raises ValueError for other encodings.
    """
    instance = _encoding(encoding, heads=1, **sizes)
    reads = "on_hidden" in instance.acts_on  # the rotation depends on the layer's input
    if "on_queries" not in instance.acts_on or reads or instance.axes != 1:
        raise ValueError(_turns_nothing(encoding, asked))
    return instance


def _turns_nothing(encoding: Encoding | str, asked: str) -> str:
    return (
        f"`encoding` must rotate pairs of channels by the position, got {_name(encoding)}. Use"
        f" {asked} with encodings such as RoPE, p-RoPE and xPos."
    )


def attention(
    encoding: Encoding | str, sentence: str = "the dog bites the man", causal: bool = False
) -> Picture:
    """Draw attention weights between the words of a sentence, without and with the encoding.

    - `encoding`: an `Encoding`, or a name of the catalogue
    - `sentence`: words to attend from and to
    - `causal`: if True, a word sees only itself and the words before it

    Embeddings and layer have the seeded weights of the explorer (`posenc.analysis.toy`). If all
    heads are equal, only one is drawn. Raises ValueError for a sentence without a word.

    >>> type(attention("alibi", "a dog")).__name__
    'Picture'
    """
    tokens = words(sentence)
    if not tokens:
        raise ValueError(
            f"`sentence` must have a word, got {brief(sentence)}. Pass 'a dog', for example."
        )
    instance = _encoding(encoding, toy.DIM, toy.HEADS)
    layer = toy.layer(instance)
    x = toy.embedded(tokens, layer.width)
    mask = earlier() if causal or instance.causal else None
    plain, weights = (attention_weights(part, x, mask) for part in (without(layer), layer))
    heads = 1 if all(head == weights[0] for head in weights) else len(weights)
    return Picture(attention_figures.compared(plain[:heads], weights[:heads], tokens))


def places() -> Picture:
    """Draw the steps of attention that each encoding of the catalogue changes.

    >>> type(places()).__name__
    'Picture'
    """
    hooks = {card.name: _encoding(card.slug).acts_on for card in CATALOG}
    return Picture(places_figures.places(hooks))


def load(path: str | Path) -> Picture:
    """Load a figure that the explorer or `Picture.save` wrote as JSON.

    - `path`: the file

    Raises ValueError if the file does not hold a figure, OSError if it cannot be read.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     file = bias("alibi").save(Path(folder, "bias.json"))
    ...     type(load(file)).__name__
    'Picture'
    """
    try:
        return Picture(figure_json.from_json(json.loads(Path(path).read_text("utf-8"))))
    except (ValueError, RecursionError) as error:
        raise ValueError(
            f"`path` must be a figure as JSON, got {brief(Path(path).name)}: {error}"
        ) from None


def _encoding(encoding: Encoding | str, dim: int = DIM, heads: int = HEADS) -> Encoding:
    if isinstance(encoding, Encoding):
        return encoding
    if not isinstance(encoding, str):
        raise TypeError(
            "`encoding` must be an encoding or a name of the catalogue, got"
            f" {brief(encoding)}. Pass `RoPE(64)` or 'rope', for example."
        )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return create(encoding, dim, heads)


def _name(encoding: Encoding | str) -> str:
    return find(encoding).name


def _no_rows(encoding: Encoding | str, instance: Encoding) -> str:
    see = "`plot.bias`" if "on_scores" in instance.acts_on else "`plot.attention`"
    return (
        f"`encoding` must act on embeddings, queries or keys, got {_name(encoding)}, which acts on"
        f" scores alone. Use {see}."
    )
