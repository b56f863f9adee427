"""Test a trained model at each length, prompt by prompt, on texts that no seed changes.

    forced      every answer is the likeliest token after the true ones before it
    generated   … after the model's own answers before it, one by one through a key cache
    endless     generated, where <eos> is neither said nor graded
    tokens      the share of answers that are the likeliest token after the true ones
    windowed    forced, where attention reaches as far as the longest text of training
    shuffled    forced, where the positions of each text change places

An encoder says all answers at once: it is neither `generated` nor `endless`. Of a language model,
whose every character is an answer, in bits per character:

    sliding     the last quarter of the trained length, read after all of the text before it
    apart       all characters of the text, the first ones included
    cropped     as sliding, of a model that is shown the trained length alone
    windowed, shuffled   as sliding
    position    the mean over texts, for each character of a text

Of hidden words, `apart` is the mean over those of a text, in bits per word.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import log
from random import Random

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn.functional import cross_entropy

from posenc.core.masks import Mask
from posenc.lab.study.cell import Cell
from posenc.lab.study.controls import draw_positions, mask_of, oracle_targets
from posenc.lab.study.model import Transformer
from posenc.lab.study.tasks import END, MARKS, Batch, Task

AT_ONCE = 2**14  # tokens in a batch of evaluation


@torch.no_grad()
def evaluate(
    model: Transformer, cell: Cell, task: Task, lengths: Sequence[int] | None = None
) -> dict[tuple[str, int], Tensor]:
    """Measure outcomes by protocol and length, one for each prompt; bool, or bits per character."""
    was_training, outcomes = model.training, {}
    model.eval()
    for n in task.lengths if lengths is None else lengths:
        parts: dict[str, list[Tensor]] = {}
        for batch, positions in _texts(cell, task, n):
            grade = _bits if task.in_bits else _right
            for protocol, outcome in grade(model, cell, task, batch, positions).items():
                parts.setdefault(protocol, []).append(outcome)
        for protocol, tensors in parts.items():
            joined = torch.cat(tensors) if protocol != "position" else torch.cat(tensors).mean(0)
            outcomes[protocol, n] = joined
    model.train(was_training)
    return outcomes


def _texts(cell: Cell, task: Task, n: int) -> Iterator[tuple[Batch, Random]]:
    """Yield batches of the prompts of length n, and a generator of their positions."""
    random, left = Random(f"evaluation {task.name} {n}"), cell.profile.prompts
    tokens = len(task.text(n, Random(0), held_out=True).symbols)
    while left:
        texts = min(left, max(1, AT_ONCE // tokens))
        yield task.batch([n] * texts, random, held_out=True), Random(f"positions {n} {left}")
        left -= texts


def _right(
    model: Transformer, cell: Cell, task: Task, batch: Batch, random: Random
) -> dict[str, Bool[Tensor, "text"]]:
    """Test whether all answers of a text are right, by protocol."""
    pos, mask = draw_positions(cell, batch.inputs.shape, random), mask_of(cell, task, batch)
    shuffled = draw_positions(replace(cell, control="shuffled"), batch.inputs.shape, random)
    near = mask_of(replace(cell, control="window"), task, batch)

    def wrong(pos: Tensor | None, mask: Mask | None, points: Tensor | None) -> Tensor:
        targets = oracle_targets(cell, batch)
        hidden = model.hidden(batch.inputs, pos, mask, oracle_targets=targets, points=points)
        wrong = torch.zeros_like(batch.answers)
        predicted = model.head(hidden[batch.answers]).argmax(-1)
        wrong[batch.answers] = predicted != batch.targets[batch.answers]
        return wrong

    forced = wrong(pos, mask, batch.points)
    outcomes = {
        "forced": ~forced.any(-1),
        "tokens": 1 - forced.sum(-1) / batch.answers.sum(-1),
        "windowed": ~wrong(pos, near, batch.points).any(-1),
        "shuffled": ~wrong(shuffled, mask, _mixed(batch.points, shuffled)).any(-1),
    }
    if not task.both_ways:
        outcomes["generated"] = _generated(model, cell, batch, pos, mask)
        outcomes["endless"] = _generated(model, cell, batch, pos, mask, ends=False)
    return outcomes


def _generated(
    model: Transformer,
    cell: Cell,
    batch: Batch,
    pos: Tensor | None,
    mask: Mask | None,
    ends: bool = True,
) -> Bool[Tensor, "text"]:
    """Let the model go on from its own answers; what is no answer is given to it.

    Without `ends`, it cannot say that a text is over, nor is it asked whether it is.
    """
    texts, tokens = batch.inputs.shape
    right, cache = torch.ones(texts, dtype=torch.bool), model.new_cache()
    inputs = batch.inputs.clone()
    answers = oracle_targets(cell, batch)
    place, first = 0, int(batch.answers.any(0).int().argmax())
    while place < tokens:
        # The prompt is read at once, then token by token
        until = max(place, first) + 1
        part = slice(0 if cache is None else place, until)
        where = None if pos is None else pos[:, part]
        logits = model(
            inputs[:, part], where, mask, cache, None if answers is None else answers[:, part]
        )[:, -1]
        if not ends:
            logits = logits.index_fill(-1, torch.tensor(MARKS.index(END)), -torch.inf)
        place, next_ = until, logits.argmax(-1)
        graded = batch.answers[:, place - 1]
        if not ends:
            graded = graded & (batch.targets[:, place - 1] != MARKS.index(END))
        right &= ~graded | (next_ == batch.targets[:, place - 1])
        if place < tokens:
            inputs[:, place] = torch.where(graded, next_, inputs[:, place])
    return right


def _bits(
    model: Transformer, cell: Cell, task: Task, batch: Batch, random: Random
) -> dict[str, Float[Tensor, "text"]]:
    """Measure bits per character of each text, by protocol."""
    shape = batch.inputs.shape
    pos, mask = draw_positions(cell, shape, random), mask_of(cell, task, batch)
    near = mask_of(replace(cell, control="window"), task, batch)
    shuffled = draw_positions(replace(cell, control="shuffled"), shape, random)

    def bits(batch: Batch, pos: Tensor | None, mask: Mask | None) -> Tensor:
        logits = model(batch.inputs, pos, mask, oracle_targets=oracle_targets(cell, batch))
        return cross_entropy(logits.mT, batch.targets, reduction="none") / log(2)

    all_bits = bits(batch, pos, mask)
    # The mean over the tokens that are hidden
    if task.both_ways:
        outcomes = {"apart": all_bits, "windowed": bits(batch, pos, near)}
        outcomes["shuffled"] = bits(batch, shuffled, mask)
        share = batch.answers / batch.answers.sum(-1, keepdim=True)
        return {protocol: (outcome * share).sum(-1) for protocol, outcome in outcomes.items()}
    kept, last = slice(-task.trained, None), slice(-max(1, task.trained // 4), None)
    # Begin with <bos>, as in training
    first = batch.inputs[:, :1]
    cropped = Batch(
        torch.cat((first, batch.inputs[:, kept][:, 1:]), -1),
        batch.targets[:, kept],
        batch.answers[:, kept],
        batch.lengths,
    )
    return {
        "sliding": all_bits[:, last].mean(-1),
        "apart": all_bits.mean(-1),
        "cropped": bits(cropped, None if pos is None else pos[:, kept], mask)[:, last].mean(-1),
        "windowed": bits(batch, pos, near)[:, last].mean(-1),
        "shuffled": bits(batch, shuffled, mask)[:, last].mean(-1),
        "position": all_bits,
    }


def _mixed(points: Tensor | None, order: Tensor | None) -> Tensor | None:
    """Points that change places as positions do, (text, token, axis)."""
    return None if points is None or order is None else points[order]
