"""Test a trained model at each length, prompt by prompt, on texts that no seed changes.

    forced      every answer is the likeliest token after the true ones before it
    generated   … after the model's own answers before it, one by one through a key cache
    windowed    forced, where attention reaches as far as the longest text of training
    shuffled    forced, where the positions of each text change places

Of a language model, whose every character is an answer, in bits per character:

    sliding     the last quarter of the trained length, read after all of the text before it
    apart       all characters of the text, the first ones included
    cropped     as sliding, of a model that is shown the trained length alone
    windowed, shuffled   as sliding
    position    the mean over texts, for each character of a text
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import log
from random import Random

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn.functional import cross_entropy

from posenc.attention.key_cache import Cache
from posenc.core.masks import Mask, window
from posenc.study.cell import Cell
from posenc.study.controls import drawn, mask_of
from posenc.study.model import Decoder
from posenc.study.tasks import Batch, Task

AT_ONCE = 2**14  # tokens in a batch of evaluation


@torch.no_grad()
def evaluate(
    model: Decoder, cell: Cell, task: Task, lengths: Sequence[int] | None = None
) -> dict[tuple[str, int], Tensor]:
    """Outcomes by protocol and length, a number for each prompt; bool, or bits per character."""
    was_training, outcomes = model.training, {}
    model.eval()
    for n in task.lengths if lengths is None else lengths:
        parts: dict[str, list[Tensor]] = {}
        for batch, positions in _texts(cell, task, n):
            grade = _bits if task.in_bits else _right
            for protocol, outcome in grade(model, cell, task, batch, positions).items():
                parts.setdefault(protocol, []).append(outcome)
        for protocol, each in parts.items():
            whole = torch.cat(each) if protocol != "position" else torch.cat(each).mean(0)
            outcomes[protocol, n] = whole
    model.train(was_training)
    return outcomes


def _texts(cell: Cell, task: Task, n: int) -> Iterator[tuple[Batch, Random]]:
    """Batches of the prompts of length n, and a generator of their positions."""
    random, left = Random(f"evaluation {cell.task} {n}"), cell.profile.prompts
    tokens = len(task.text(n, Random(0), held_out=True).symbols)
    while left:
        texts = min(left, max(1, AT_ONCE // tokens))
        yield task.batch([n] * texts, random, held_out=True), Random(f"positions {n} {left}")
        left -= texts


def _right(
    model: Decoder, cell: Cell, task: Task, batch: Batch, random: Random
) -> dict[str, Bool[Tensor, "text"]]:
    """Test whether all answers of a text are right, by protocol."""
    whole = ~batch.answers
    pos, mask = drawn(cell, batch.inputs.shape, random), mask_of(cell, task)
    shuffled = drawn(replace(cell, control="shuffled"), batch.inputs.shape, random)
    reach = window(task.longest)

    def forced(pos: Tensor | None, mask: Mask | None) -> Tensor:
        said = model(batch.inputs, pos, mask, told=_told(cell, batch)).argmax(-1)
        return (whole | (said == batch.targets)).all(-1)

    return {
        "forced": forced(pos, mask),
        "generated": _generated(model, cell, task, batch, pos, mask),
        "windowed": forced(pos, reach),
        "shuffled": forced(shuffled, mask),
    }


def _generated(
    model: Decoder, cell: Cell, task: Task, batch: Batch, pos: Tensor | None, mask: Mask | None
) -> Bool[Tensor, "text"]:
    """Let the model go on from its own answers; what is no answer is given to it."""
    texts, tokens = batch.inputs.shape
    right, cache = torch.ones(texts, dtype=torch.bool), Cache()
    said = batch.inputs.clone()
    told = _told(cell, batch)
    place, first = 0, int(batch.answers.any(0).int().argmax())
    while place < tokens:
        until = max(place, first) + 1  # the prompt at once, then token by token
        part = slice(place, until)
        where = None if pos is None else pos[:, part]
        logits = model(
            said[:, part], where, mask, cache, told=None if told is None else told[:, part]
        )[:, -1]
        place, next_ = until, logits.argmax(-1)
        graded = batch.answers[:, place - 1]
        right &= ~graded | (next_ == batch.targets[:, place - 1])
        if place < tokens:
            said[:, place] = torch.where(graded, next_, said[:, place])
    return right


def _bits(
    model: Decoder, cell: Cell, task: Task, batch: Batch, random: Random
) -> dict[str, Float[Tensor, "text"]]:
    """Bits per character of each text, by protocol."""
    scored = max(1, task.trained // 4)
    shape = batch.inputs.shape
    pos, mask = drawn(cell, shape, random), mask_of(cell, task)
    shuffled = drawn(replace(cell, control="shuffled"), shape, random)

    def bits(inputs: Tensor, targets: Tensor, pos: Tensor | None, mask: Mask | None) -> Tensor:
        told = targets if cell.control == "oracle" else None
        logits = model(inputs, pos, mask, told=told)
        return cross_entropy(logits.mT, targets, reduction="none") / log(2)

    every = bits(batch.inputs, batch.targets, pos, mask)
    seen, kept = batch.inputs, slice(-task.trained, None)
    near = torch.cat((seen[:, :1], seen[:, kept][:, 1:]), -1)  # as in training, after <bos>
    cropped = bits(near, batch.targets[:, kept], None if pos is None else pos[:, kept], mask)
    windowed = bits(seen, batch.targets, pos, window(task.trained))
    mixed = bits(seen, batch.targets, shuffled, mask)
    last = slice(-scored, None)
    return {
        "sliding": every[:, last].mean(-1),
        "apart": every.mean(-1),
        "cropped": cropped[:, last].mean(-1),
        "windowed": windowed[:, last].mean(-1),
        "shuffled": mixed[:, last].mean(-1),
        "position": every,
    }


def _told(cell: Cell, batch: Batch) -> Tensor | None:
    return batch.targets if cell.control == "oracle" else None
