"""Studies whose outcomes are made up: curves that fall as published ones do, and seeds that differ.

`study(...)` gives the contents of a store; nothing is trained.
"""

import random
from dataclasses import asdict
from pathlib import Path

import torch

from posenc.lab.study.cell import Profile, Result
from posenc.lab.study.plan import Plan
from posenc.lab.study.store import Contents, Record

PROMPTS, TRAINED = 40, 20
SMALL = Profile(steps=5, prompts=PROMPTS)
FALL = {"nope": 0.4, "t5": 0.15, "alibi": 0.3, "rope": 3.0, "sinusoidal": 2.0}  # by a half of L
LENGTHS = (8, 16, 20, 24, 28, 32, 40)


def plan(encodings=tuple(FALL), tasks=("copy",), seeds=6, **rest):
    content = {"tasks": [*tasks], "encodings": [*encodings], "profile": asdict(SMALL)}
    content |= {"trained": TRAINED, "tested": [*LENGTHS], "seeds": seeds}
    return Plan.of(content | rest)


def study(planned, failures=(), missing=(), deviations=(), path=Path()):
    """The contents of a store with a cell of the plan each; in `language`, bits per character.

    `failures` and `missing` are (encoding, seed).
    """
    records = {}
    for cell in planned.cells():
        if (cell.name, cell.seed) in missing:
            continue
        draw = random.Random(f"{cell.task} {cell.name} {cell.seed}")
        fall, outcomes = FALL.get(cell.encoding, 1.0) * draw.uniform(0.6, 1.4), {}
        for n in cell.tested:
            beyond = max(0.0, 2 * (n - TRAINED) / TRAINED)
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
