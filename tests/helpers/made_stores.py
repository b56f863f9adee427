"""Stores of registered plans with outcomes that are made up, some of their cells missing."""

from dataclasses import replace
from random import Random

import torch

from posenc.lab.study.cell import Result
from posenc.lab.study.plan import Plan
from posenc.lab.study.store import Record, Store


def made_store(folder, seeds):
    """Write a store of a plan with made outcomes; the last of the seeds lacks two rows."""
    asked = Plan.read(folder / "plan.toml")
    rates = asked.rates or (asked.profile.rate,)
    fast = {row.name: max(rates) for row in asked.encodings[::2]}
    rate = {(task, row.name): fast.get(row.name, min(rates))
            for task in asked.tasks for row in asked.encodings}  # fmt: skip
    done = asked.cells(rate)[: max(0, seeds * len(asked.encodings) * len(asked.tasks) - 2)]
    length = asked.trained
    lengths = asked.tested or (length, length * 5 // 4, length * 3 // 2, 2 * length, 8 * length)
    kinds = {"language": ("sliding", "cropped", "windowed"), "masked": ("apart", "windowed")}
    writer = Store(folder)
    writer.register(asked.digest, asked.text, {})
    for cell in (asked.trials() if asked.rates and seeds else []) + done:
        draw = Random(f"{cell.task} {cell.name} {cell.seed}")
        tested = [n for n in lengths if n <= length] if cell.seed > 10_000 else lengths
        cell = replace(cell, trained=asked.trained, tested=tuple(tested), told=65)
        cell = cell if asked.told else replace(cell, told=None)
        better = 0.2 * (cell.profile.rate == rate[cell.task, cell.name])
        outcomes = {}
        for n in tested:
            share = draw.random() if n > length else 1.0
            right = torch.arange(37) < round(37 * share)
            bits = torch.full((37,), 2 + share - better)
            for protocol in kinds.get(cell.task, ("generated",)):
                cut = bits / 2 if protocol == "cropped" else bits
                outcomes[protocol, n] = cut if cell.task in kinds else right
        writer.add(Record.of(cell, Result(outcomes, (1.0,), 100, 0.5)))
    writer.close()
