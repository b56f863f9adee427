"""Read the outcomes in the stores of `studies/` by SQL and the standard library alone."""

import json
import sqlite3
from contextlib import closing
from functools import cache
from itertools import product
from pathlib import Path
from statistics import fmean
from struct import unpack

STUDIES = Path(__file__).parents[2] / "studies"
GRADED = "generated", "sliding", "forced", "apart"  # the first that a study has
TRIALS = 10_000  # runs with larger seeds only choose learning rates


def rows(study, statement):
    """Run an SQL query on a study's store; "use-of-length#recall" names the task of a study."""
    folder = STUDIES / study.partition("#")[0]
    file = folder / "results.db"
    if not file.exists():  # a study that is under way
        file = folder / "running.db"
    name = f"{file.as_uri()}?mode=ro&immutable=1"
    with closing(sqlite3.connect(name, uri=True)) as file:
        return file.execute(statement).fetchall()


def labelled(study):
    """Return (label, settings) of each training run; trials of learning rates are left out."""
    cells = [
        (label, json.loads(x)) for x, label in rows(study, "SELECT settings, label FROM cells")
    ]
    named = [(label or cell["encoding"], cell) for label, cell in cells if cell["seed"] <= TRIALS]
    task = study.partition("#")[2]
    return [(label, cell) for label, cell in named if task in ("", cell["task"])]


def settings(study):
    return [cell for _, cell in labelled(study)]


@cache
def graded(study):
    """Return (protocol, kind) of the outcomes on which a study's results are based."""
    kinds = dict(rows(study, "SELECT DISTINCT protocol, kind FROM outcomes"))
    return next(((name, kinds[name]) for name in GRADED if name in kinds), ("", ""))


@cache
def means(study, *protocols):
    """Return the mean outcome over prompts, keyed by task, encoding, length and seed."""
    found = {}
    select = "SELECT settings, label, protocol, length, kind, prompts, data"
    for cell, label, protocol, n, kind, prompts, data in rows(
        study, f"{select} FROM cells JOIN outcomes USING (digest)"
    ):
        if protocol not in (protocols or graded(study)[:1]):
            continue
        if kind == "bits":
            values = [byte >> place & 1 for byte in data for place in range(7, -1, -1)][:prompts]
        else:
            values = unpack(f"<{prompts}f", data)
        cell = json.loads(cell)
        if cell["seed"] > TRIALS or study.partition("#")[2] not in ("", cell["task"]):
            continue
        found[cell["task"], label or cell["encoding"], n, cell["seed"]] = fmean(values)
    return found


def of_seeds(study, name, *lengths, cropped=False):
    """Return an encoding's mean outcome over lengths, by seed; unfinished studies lack seeds."""
    found = means(study, *(["cropped"] if cropped else []))
    seeds = sorted({seed for _, row, _, seed in found if row == name})
    task = next(task for task, *_ in found)
    return {seed: fmean(found[task, name, n, seed] for n in lengths) for seed in seeds}


def by_seed(study, name, *lengths, cropped=False):
    return [*of_seeds(study, name, *lengths, cropped=cropped).values()]


def mean(study, name, *lengths, cropped=False):
    return fmean(by_seed(study, name, *lengths, cropped=cropped))


def sign_flip(apart):
    """Return the share of all sign flips whose sum is at least as far from 0 as the given one."""
    seen = abs(sum(apart)) - 1e-12
    sums = [abs(sum(x * s for x, s in zip(apart, signs, strict=True)))
            for signs in product((1, -1), repeat=len(apart))]  # fmt: skip
    return fmean(total >= seen for total in sums)


def names(study):
    return {name for _, name, *_ in means(study)}


def cost_of_reading_on(study, name):
    """Return, by seed, the bits at length 2 L minus the bits of the text cropped to L."""
    read, cut = (by_seed(study, name, 128, cropped=cropped) for cropped in (False, True))
    return [x - y for x, y in zip(read, cut, strict=True)]
