"""Studies with invented outcomes, which fall with length as published curves do, and vary by seed.

`study(...)` gives the contents of a store, `made_store(...)` writes the store of a registered plan;
nothing is trained.
"""

import random
from dataclasses import asdict, replace
from pathlib import Path

import torch

from posenc.lab.study.cell import Profile, Result
from posenc.lab.study.plan import Plan
from posenc.lab.study.store import Contents, Record, Store

PROMPTS, TRAINED = 40, 20
SMALL = Profile(steps=5, prompts=PROMPTS)
FALL = {"nope": 0.4, "t5": 0.15, "alibi": 0.3, "rope": 3.0, "sinusoidal": 2.0}  # by a half of L
LENGTHS = (8, 16, 20, 24, 28, 32, 40)


def plan(encodings=tuple(FALL), tasks=("copy",), seeds=6, **rest):
    content = {"tasks": [*tasks], "encodings": [*encodings], "profile": asdict(SMALL)}
    content |= {"trained": TRAINED, "tested": [*LENGTHS], "seeds": seeds}
    return Plan.of(content | rest)


def study(planned, failures=(), missing=(), deviations=(), path=Path()):
    """Return the contents of a store with an invented result for each training run of a plan.

    `failures` and `missing` are (encoding, seed).
    """
    records = {}
    for cell in planned.cells():
        if (cell.name, cell.seed) in missing:
            continue
        draw = random.Random(f"{cell.task} {cell.name} {cell.seed}")
        fall, outcomes = FALL.get(cell.encoding, 1.0) * draw.uniform(0.6, 1.4), {}
        for n in cell.tested:
            learned = max(TRAINED, cell.trained or 0)
            beyond = max(0.0, 2 * (n - learned) / TRAINED)
            if cell.task == "language":
                bits = 2.2 + 0.1 * fall * beyond + draw.uniform(0, 0.05)
                outcomes["sliding", n] = torch.full((PROMPTS,), bits)
                outcomes["cropped", n] = torch.full((PROMPTS,), min(bits, 2.2 + n / 1000))
            else:
                right = round(PROMPTS * max(0.0, 1 - fall * beyond / 2))
                outcomes["generated", n] = torch.arange(PROMPTS) < right
        record = Record.of(cell, Result(outcomes, (1.5, 1.0), 100_123, 0.012))
        if (cell.name, cell.seed) in failures:
            record = Record(cell, None, (), "mean loss 3 of 16 is nan", {})
        records[cell.digest] = record
    sources = {"posenc": "0.1.0", "torch": "2.13.0"}
    return Contents([(planned.digest, planned.text)], [*deviations], sources, records, path)


def made_store(folder, seeds):
    """Write a store with invented outcomes of a plan; the last seed lacks two training runs."""
    asked = Plan.read(folder / "plan.toml")
    rates = asked.rates or (asked.profile.rate,)
    fast = {row.name: max(rates) for row in asked.encodings[::2]}
    rate = {(task, row.name): fast.get(row.name, min(rates))
            for task in asked.tasks for row in asked.encodings}  # fmt: skip
    done = asked.cells(rate if asked.rates else {})[
        : max(0, seeds * len(asked.encodings) * len(asked.tasks) - 2)
    ]
    length = asked.trained
    lengths = asked.tested or (length, length * 5 // 4, length * 3 // 2, 2 * length, 8 * length)
    kinds = {"language": ("sliding", "cropped", "windowed"), "masked": ("apart", "windowed")}
    writer = Store(folder)
    writer.register(asked.digest, asked.text, {})
    for cell in (asked.trials() if asked.rates and seeds else []) + done:
        draw = random.Random(f"{cell.task} {cell.name} {cell.seed}")
        tested = [n for n in lengths if n <= length] if cell.seed > 10_000 else lengths
        cell = replace(cell, trained=cell.trained or length, tested=tuple(tested), told=65)
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
