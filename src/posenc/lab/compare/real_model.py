"""Measurements of a real model on a text: attention, scores by distance, use of word order.

The model is opened by `reader`, its queries and keys are recorded by `capture`, and its config is
read by `inspection`.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from posenc.analysis import decomposition, order, similarity
from posenc.analysis.capture import Attended, capture
from posenc.analysis.decomposition import Decomposition
from posenc.analysis.order import Order
from posenc.analysis.similarity import Bound, Curve
from posenc.analysis.text import Text
from posenc.core.encoding import Encoding
from posenc.encodings.rotary.rope import RoPE
from posenc.lab.compare.reader import Reader, Words, open_reader, order_known
from posenc.models.files.errors import ModelError
from posenc.models.hf.loading import TOKENIZER, named, one_sentence
from posenc.models.inspection import Inspection, inspect

WINDOW = 256  # tokens of the text for curves; fewer if the model's context is shorter
LAYERS = 3  # number of layers: the first, the last, and one between
HEADS = 8  # number of heads of the first layer


@dataclass(frozen=True)
class LayerReading:
    """The measurements of one layer of a real model."""

    number: int
    weights: list[list[float]]  # weights (query, key) for the sentence, mean over heads
    curve: Curve  # scores of the text by distance


@dataclass(frozen=True)
class ModelReading:
    """The measurements of a real model on a text."""

    name: str  # name of its folder
    inspection: Inspection
    tokens: list[str]
    window: int
    layers: list[LayerReading]
    heads: list[list[list[float]]]  # weights (head, query, key) of the first layer
    parts: Decomposition | None  # decomposition of the first layer
    bound: Bound | None  # bound for a real query and key of the first layer
    order: Order | None
    notes: list[str]  # missing measurements, with the reasons

    def to_json(self) -> dict[str, Any]:
        tree = asdict(self)
        return tree | {"inspection": self.inspection.to_json()}


def read(folder: Path, text: Text) -> ModelReading:
    """Measure the model in a folder on a text.

    Raises ValueError or TypeError if the model cannot be measured.
    """
    inspection, reader = inspect(folder), open_reader(folder)
    sentence = " ".join(text.words[_example(text)])
    with one_sentence("config.json", "makes a model that cannot read the text"):
        words = reader.words(sentence)
        _refuse_unreadable(reader, words, inspection.spec.context)
        return _read(folder, inspection, reader, text, sentence, words)


def _refuse_unreadable(reader: Reader, words: Words, context: int | None) -> None:
    """Raise ModelError if the tokenizer does not fit the model."""
    count, own = words.ids.shape[-1], words.ids[0, words.own]
    rows = reader.model.get_input_embeddings().weight.shape[0]
    if context and count > context:
        long = f"splits a sentence into {count:,} tokens, and the model reads at most {context:,}"
        raise ModelError(TOKENIZER, "", long)
    if not 0 <= int(words.ids.min()) <= int(words.ids.max()) < rows:
        token = int(words.ids.max())
        raise ModelError(
            TOKENIZER,
            "",
            f"has token id {token:,}, but the model embeds only ids below {rows:,}. Use the model's"
            " own tokenizer",
        )
    if len(own) < 2 or len(own.unique()) < 2:
        raise ModelError(
            TOKENIZER,
            "",
            "maps all words of the text to the same token. Use the model's own tokenizer",
        )


def _read(
    folder: Path, inspection: Inspection, reader: Reader, text: Text, sentence: str, words: Words
) -> ModelReading:
    notes: list[str] = []
    if reader.unused:
        notes.append(
            f"The model was used without its head; unused weights: {named(reader.unused)}."
        )
    if reader.model.config.is_encoder_decoder:
        reader = replace(reader, model=reader.model.get_encoder())
        notes.append("The model has an encoder and a decoder; figures show the encoder.")
    near = capture(reader.model, {"input_ids": words.ids})
    if not all(torch.isfinite(attended.scores()).all() for attended in near):
        raise ModelError(
            folder.resolve(),
            "",
            "computes attention scores that are NaN or infinite, so posenc cannot draw the scores."
            " Check the weights",
        )
    window = min(WINDOW, inspection.spec.context or WINDOW)
    far = capture(reader.model, {"input_ids": _window(reader, text, window)})
    encodings = _encodings(inspection, notes)
    first = encodings[0] if encodings else None
    kept = sorted({round(n * (len(near) - 1) / (LAYERS - 1)) for n in range(LAYERS)})
    return ModelReading(
        name=folder.resolve().name,
        inspection=inspection,
        tokens=words.tokens,
        window=far[0].q.shape[-2],
        layers=[
            LayerReading(
                n, near[n].weights()[0].mean(0).tolist(), similarity.curve(far[n].scores())
            )
            for n in kept
        ],
        heads=near[0].weights()[0, :HEADS].tolist(),
        parts=_parts(reader, first, near[0], {"input_ids": words.ids}, notes),
        bound=_bound(first, far[0]),
        order=_order(reader, sentence, notes),
        notes=notes,
    )


def _example(text: Text) -> slice:
    """Find a sentence of 12 to 20 words, if possible with a word that occurs twice."""
    spans = text.sentences(shortest=12, longest=20) or text.sentences()
    twice = [span for span in spans if order.repeated(text.words[span], shortest=4)]
    return next(iter(twice or spans), slice(0, min(16, len(text.words))))


def _window(reader: Reader, text: Text, tokens: int) -> Tensor:
    return reader.words(" ".join(text.words[:tokens])).ids[:, :tokens]


def _encodings(inspection: Inspection, notes: list[str]) -> list[Encoding]:
    try:
        return inspection.spec.encodings()
    except ValueError as error:
        notes.append(f"The encoding of queries and keys is not known: {error}")
        return []


def _parts(
    reader: Reader,
    encoding: Encoding | None,
    attended: Attended,
    inputs: Mapping[str, Tensor],
    notes: list[str],
) -> Decomposition | None:
    """Split the scores of a layer into terms, such as those from words and from positions."""
    model = reader.model
    if hasattr(getattr(model, "encoder", None), "layer") and hasattr(
        getattr(model, "embeddings", None), "position_embeddings"
    ):
        return decomposition.of_bert(model, inputs)
    try:
        return decomposition.of_attended(attended, encoding if attended.turned else None)
    except ValueError as error:
        notes.append(f"Scores are not split into parts: {error}")
        return None


def _bound(encoding: Encoding | None, attended: Attended) -> Bound | None:
    """Return RoFormer's upper bound on the score between the last query and the first key.

    Returns None unless the encoding is a RoPE of one axis that rotates all channels.
    """
    if not isinstance(encoding, RoPE) or encoding.axes > 1 or not attended.turned:
        return None
    q, k = attended.q_plain[0, 0, -1], attended.k_plain[0, 0, 0]
    if encoding.turned != len(q):
        return None
    return similarity.bound(encoding.freqs, q, k, 4 * attended.q.shape[-2], encoding.layout)


def _order(reader: Reader, sentence: str, notes: list[str]) -> Order | None:
    try:
        return order_known(reader, sentence)
    except TypeError as error:
        notes.append(f"Use of word order was not measured: {error}")
        return None
