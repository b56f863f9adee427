"""Evaluation of a trained model at each length, on prompts that are the same for all seeds.

Protocols of tasks whose answers are right or wrong:

    forced      every answer is the likeliest token after the true tokens before it
    generated   every answer is the likeliest token after the model's own answers, with a key cache
    endless     as generated, but <eos> is neither generated nor graded
    tokens      share of answers that are the likeliest token after the true tokens
    windowed    as forced; attention reaches as far back as the longest training text is long
    cropped     as forced; the model reads only the last tokens, as many as the longest training
                text has
    shuffled    as forced; positions are permuted within each text

An encoder predicts all answers at once, so it has no `generated`, `endless` or `cropped`.
Protocols of a language model, in which every character is an answer, in bits per character:

    sliding     the last quarter of the trained length, after all of the text before it
    apart       all characters of the text, from the first on
    cropped     as sliding; the model reads only the last characters, as many as it was trained on
    windowed, shuffled   as sliding
    position    for each character of a text, the mean over texts

For masked words, `apart` is the mean over the masked words of a text, in bits per word.

A learned table with a row for each token of the training pictures is resized to larger pictures, by
cubic splines, as ViT's is.
"""

from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import replace
from math import isqrt, log
from random import Random

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import cross_entropy

from posenc.core.encoding import Encoding
from posenc.core.masks import Mask
from posenc.encodings.additive.learned import Learned
from posenc.lab.study.cell import Cell
from posenc.lab.study.controls import draw_positions, mask_of
from posenc.lab.study.model import Transformer
from posenc.lab.study.tasks import END, MARKS, Batch, Task

AT_ONCE = 2**14  # tokens in a batch of evaluation

Predictions = dict[str, Tensor]  # outputs of a model by protocol: predicted tokens, or logits


def evaluate(
    model: Transformer, cell: Cell, task: Task, lengths: Sequence[int] | None = None
) -> dict[tuple[str, int], Tensor]:
    """Test a model on prompts of each length, and return the outcome of each prompt.

    An outcome is right or wrong, or a number of bits per character.

    The keys of the result are (evaluation protocol, text length).
    """
    outcomes = {}
    for n in task.lengths if lengths is None else lengths:
        texts = _texts(cell, task, n)
        graded = [
            _grade(task, batch, _predict(model, cell, task, batch, at)) for batch, at in texts
        ]
        outcomes |= _joined(graded, n)
    return outcomes


def predict(model: Transformer, cell: Cell, task: Task) -> Predictions:
    """Run the model on all test prompts, and return its outputs keyed "length/batch/protocol".

    `grade` computes the outcomes from these outputs.
    """
    return {
        f"{n}/{place}/{protocol}": output
        for n in task.lengths
        for place, (batch, at) in enumerate(_texts(cell, task, n))
        for protocol, output in _predict(model, cell, task, batch, at).items()
    }


def grade(predictions: Predictions, cell: Cell, task: Task) -> dict[tuple[str, int], Tensor]:
    """Grade saved predictions: compute the same outcomes as `evaluate`, without a model.

    Raises ValueError for predictions whose protocols, shapes or types are not those of the cell.
    """
    outcomes, left = {}, dict(predictions)
    for n in task.lengths:
        graded = []
        for place, (batch, _) in enumerate(_texts(cell, task, n)):
            names = {name: f"{n}/{place}/{name}" for name in _protocols(task)}
            outputs = {name: left.pop(key) for name, key in names.items() if key in left}
            _check_outputs(outputs, task, batch, f"length {n}, batch {place}")
            graded.append(_grade(task, batch, outputs))
        outcomes |= _joined(graded, n)
    if left:
        raise ValueError(
            "the keys of `predictions` must be length/batch/output for the tested lengths, got"
            f" {min(left)}. Pass the result of `predict`."
        )
    return outcomes


def _protocols(task: Task) -> tuple[str, ...]:
    """Return the names of the evaluation protocols, such as "cropped", that apply to a task."""
    if task.in_bits:
        return ("apart", "windowed", "shuffled", *(() if task.both_ways else ("cropped",)))
    forward = () if task.both_ways else ("cropped", "generated", "endless")
    return ("forced", "windowed", "shuffled", *forward)


def _check_outputs(outputs: Predictions, task: Task, batch: Batch, where: str) -> None:
    """Raise ValueError if saved predictions have a wrong shape or dtype.

    Wrong shapes could broadcast without an error.
    """
    for name in _protocols(task):
        tokens = batch.inputs[:, -_cropped_length(task) :] if name == "cropped" else batch.inputs
        shape = (*tokens.shape, len(task.vocabulary)) if task.in_bits else tuple(tokens.shape)
        kind = torch.float32 if task.in_bits else torch.int64
        held = outputs.get(name)
        if held is None or tuple(held.shape) != shape or held.dtype != kind:
            got = "none" if held is None else f"{held.dtype} of shape {tuple(held.shape)}"
            raise ValueError(
                f"the predictions {name!r} for {where} must be {kind} of shape {shape}, got {got}."
                " Pass the result of `predict`."
            )


def _joined(graded: Sequence[dict[str, Tensor]], n: int) -> dict[tuple[str, int], Tensor]:
    """Concatenate the outcomes of all batches of length n.

    Bits at each character position are averaged over texts.
    """
    joined = {name: torch.cat([one[name] for one in graded]) for name in graded[0]}
    return {(name, n): x.mean(0) if name == "position" else x for name, x in joined.items()}


def _texts(cell: Cell, task: Task, n: int) -> Iterator[tuple[Batch, Random]]:
    """Yield batches of test prompts of length n, each with a random generator for its positions."""
    random, left = Random(f"evaluation {task.name} {n}"), cell.profile.prompts
    tokens = len(task.text(n, Random(0), held_out=True).symbols)
    while left:
        texts = min(left, max(1, AT_ONCE // tokens))
        yield task.batch([n] * texts, random, held_out=True), Random(f"positions {n} {left}")
        left -= texts


@torch.no_grad()
def _predict(
    model: Transformer, cell: Cell, task: Task, batch: Batch, random: Random
) -> Predictions:
    """Run a model on a batch in evaluation mode, and return its outputs under each protocol."""
    was_training = model.training
    model.eval()
    model = with_resized_table(model, task, batch.inputs.shape[1])
    outputs = (_logits if task.in_bits else _tokens)(model, cell, task, batch, random)
    model.train(was_training)
    return outputs


def is_resized(encoding: Encoding, task: Task) -> bool:
    """Test whether an encoding is a learned table that is resized for pictures of other sizes."""
    return (
        task.points is not None
        and isinstance(encoding, Learned)
        and encoding.length == task.longest
    )


def with_resized_table(model: Transformer, task: Task, tokens: int) -> Transformer:
    """Return a model whose learned position table, if any, fits pictures of `tokens` tokens.

    The row of `<bos>` is kept, as that of a class token.
    """
    encoding, side = next(model.encodings()), isqrt(tokens)
    if not is_resized(encoding, task) or tokens == task.longest:
        return model
    assert isinstance(encoding, Learned)
    model = deepcopy(model)
    next(model.attentions()).encoding = encoding.resized((side, side), kept=1)
    return model


def _grade(task: Task, batch: Batch, outputs: Predictions) -> dict[str, Tensor]:
    return (_bits if task.in_bits else _right)(task, batch, outputs)


def _tokens(
    model: Transformer, cell: Cell, task: Task, batch: Batch, random: Random
) -> dict[str, Int[Tensor, "text token"]]:
    """Predict the answers of a batch under each evaluation protocol.

    Tokens that are not answers are 0.
    """
    pos, mask = draw_positions(cell, batch.inputs.shape, random), mask_of(cell, task, batch)
    shuffled = draw_positions(replace(cell, control="shuffled"), batch.inputs.shape, random)
    near = mask_of(replace(cell, control="window"), task, batch)

    def predicted(
        pos: Tensor | None, mask: Mask | None, points: Tensor | None, batch: Batch = batch
    ) -> Tensor:
        hidden = model.hidden(batch.inputs, pos, mask, points=points)
        tokens = torch.zeros_like(batch.targets)
        tokens[batch.answers] = model.head(hidden[batch.answers]).argmax(-1)
        return tokens

    outputs = {
        "forced": predicted(pos, mask, batch.points),
        "windowed": predicted(pos, near, batch.points),
        "shuffled": predicted(shuffled, mask, _permuted(batch.points, shuffled)),
    }
    if not task.both_ways:
        kept = _cropped_length(task)
        where = None if pos is None else pos[:, -kept:]
        outputs["cropped"] = predicted(where, mask, None, _cropped(batch, kept))
        outputs["generated"] = _generated(model, cell, batch, pos, mask)
        outputs["endless"] = _generated(model, cell, batch, pos, mask, ends=False)
    return outputs


def _right(task: Task, batch: Batch, outputs: Predictions) -> dict[str, Tensor]:
    """Test whether all answers of a text are right, for each text and evaluation protocol."""
    wrong = {}
    for name, tokens in outputs.items():
        answers, targets = (x[:, -tokens.shape[1] :] for x in (batch.answers, batch.targets))
        wrong[name] = answers & (tokens != targets)
        if tokens.shape[1] < batch.answers.shape[1]:
            # An answer that is cropped away counts as wrong
            lost = batch.answers[:, : -tokens.shape[1]].any(-1, keepdim=True)
            wrong[name] |= lost
    outcomes = {name: ~x.any(-1) for name, x in wrong.items() if name != "endless"}
    outcomes["tokens"] = 1 - wrong["forced"].sum(-1) / batch.answers.sum(-1)
    if "endless" in wrong:
        outcomes["endless"] = ~(wrong["endless"] & (batch.targets != MARKS.index(END))).any(-1)
    return outcomes


def _generated(
    model: Transformer,
    cell: Cell,
    batch: Batch,
    pos: Tensor | None,
    mask: Mask | None,
    ends: bool = True,
) -> Int[Tensor, "text token"]:
    """Generate the answers of a batch token by token; all other tokens come from the batch.

    With `ends=False`, the model cannot generate <eos>, and reads it from the batch.
    """
    generated, cache = torch.zeros_like(batch.targets), model.new_cache()
    inputs, tokens = batch.inputs.clone(), batch.inputs.shape[1]
    place, first = 0, int(batch.answers.any(0).int().argmax())
    while place < tokens:
        # The first pass reads the prompt, each later one a token
        until = max(place, first) + 1
        part = slice(0 if cache is None else place, until)
        where = None if pos is None else pos[:, part]
        logits = model(inputs[:, part], where, mask, cache)[:, -1]
        if not ends:
            logits = logits.index_fill(-1, torch.tensor(MARKS.index(END)), -torch.inf)
        place, next_ = until, logits.argmax(-1)
        generated[:, place - 1] = next_
        graded = batch.answers[:, place - 1]
        if not ends:
            graded = graded & (batch.targets[:, place - 1] != MARKS.index(END))
        if place < tokens:
            inputs[:, place] = torch.where(graded, next_, inputs[:, place])
    return generated


def _logits(
    model: Transformer, cell: Cell, task: Task, batch: Batch, random: Random
) -> dict[str, Float[Tensor, "text token word"]]:
    """Return the logits (text, token, word) of a batch under each evaluation protocol."""
    shape = batch.inputs.shape
    pos, mask = draw_positions(cell, shape, random), mask_of(cell, task, batch)
    near = mask_of(replace(cell, control="window"), task, batch)
    shuffled = draw_positions(replace(cell, control="shuffled"), shape, random)

    outputs = {
        "apart": model(batch.inputs, pos, mask),
        "windowed": model(batch.inputs, pos, near),
        "shuffled": model(batch.inputs, shuffled, mask),
    }
    if not task.both_ways:
        kept = _cropped_length(task)
        where = None if pos is None else pos[:, -kept:]
        outputs["cropped"] = model(_cropped(batch, kept).inputs, where, mask)
    return outputs


def _cropped_length(task: Task) -> int:
    """Return the length of the model's input for the longest training text."""
    return task.longest - 1


def _cropped(batch: Batch, most: int) -> Batch:
    """Crop each text to `most` tokens: <bos> and the last tokens of the text."""
    first, kept = batch.inputs[:, :1], slice(-most, None)
    return Batch(
        torch.cat((first, batch.inputs[:, kept][:, 1:]), -1),
        batch.targets[:, kept],
        batch.answers[:, kept],
        batch.lengths,
    )


def _bits(task: Task, batch: Batch, outputs: Predictions) -> dict[str, Tensor]:
    """Compute the mean bits per character of each text under each evaluation protocol."""
    bits = {
        name: cross_entropy(logits.mT, batch.targets[:, -logits.shape[1] :], reduction="none")
        / log(2)
        for name, logits in outputs.items()
    }
    if task.both_ways:
        # The mean over the masked words of each text
        share = batch.answers / batch.answers.sum(-1, keepdim=True)
        return {protocol: (outcome * share).sum(-1) for protocol, outcome in bits.items()}
    last = slice(-max(1, task.trained // 4), None)
    read = ("cropped", "windowed", "shuffled")
    return {
        "sliding": bits["apart"][:, last].mean(-1),
        "apart": bits["apart"].mean(-1),
        **{name: bits[name][:, last].mean(-1) for name in read},
        "position": bits["apart"],
    }


def _permuted(points: Tensor | None, order: Tensor | None) -> Tensor | None:
    """Reorder the points (row, column) of tokens by `order`; None if either argument is None."""
    return None if points is None or order is None else points[order]
