"""Recompute the numbers of a study from its store, with numpy and the standard library alone.

    python studies/recompute.py studies/shape-text [FOLDER …]

Prints one JSON document for each folder: by row the mean at each length and the interval of the
plan's metric, and by contrast the difference, its interval, the seeds in which it is above 0, and
p of the exact sign-flip test, alone and adjusted by Holm. The script imports nothing of posenc, so
an error there cannot repeat itself here. A test compares both.

The store is SQLite (`sqlite3 results.db .schema`): `plans` has the registered plan as TOML; `cells`
the settings of each training run as JSON; `outcomes` its outcome for each prompt, by protocol and
length: bits, most significant first, or little-endian float32.
"""

import json
import re
import sqlite3
import sys
import tomllib
from collections.abc import Sequence
from itertools import product
from math import exp, lgamma, pi, tan
from pathlib import Path
from typing import Any

import numpy as np

PROTOCOLS = "generated", "sliding", "forced", "apart"  # the first that a run has is its outcome
TRIALS = 10_000  # runs with greater seeds only choose learning rates
TERM = re.compile(r"(.+?)(?: (cropped|windowed))?(?: at (\d+))?")

Table = dict[str, Any]


def read(folder: Path) -> tuple[Table, list[Table]]:
    """Return the plan of a study, and its training runs as dicts: settings, label and outcomes."""
    file = folder / "results.db"
    if not file.exists():
        file = folder / "running.db"
    connection = sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro&immutable=1", uri=True)
    (text,) = connection.execute("SELECT text FROM plans ORDER BY number DESC LIMIT 1").fetchone()
    runs = {}
    cells = "SELECT digest, settings, label FROM cells WHERE failure IS NULL"
    for digest, settings, label in connection.execute(cells):
        cell = json.loads(settings)
        if cell["seed"] <= TRIALS:
            runs[digest] = {**cell, "label": label or cell["encoding"], "outcomes": {}}
    outcomes = "SELECT digest, protocol, length, kind, prompts, data FROM outcomes"
    for digest, protocol, length, kind, prompts, data in connection.execute(outcomes):
        if digest in runs:
            if kind == "bits":
                values = np.unpackbits(np.frombuffer(data, np.uint8))[:prompts].astype(float)
            else:
                values = np.frombuffer(data, "<f4").astype(float)
            runs[digest]["outcomes"][protocol, length] = values
    connection.close()
    return tomllib.loads(text), [*runs.values()]


def graded(run: Table, protocol: str = "") -> dict[int, np.ndarray]:
    """Return the outcomes of a run by length."""
    names = {name for name, _ in run["outcomes"]}
    used = protocol or next(name for name in PROTOCOLS if name in names)
    return {n: x for (name, n), x in sorted(run["outcomes"].items()) if name == used}


def in_bits(run: Table) -> bool:
    """Test whether the outcomes of a run are bits, of which fewer are better."""
    return not any(name == "generated" or name == "tokens" for name, _ in run["outcomes"])


def measured(run: Table, metric: str, length: int, protocol: str = "") -> np.ndarray | None:
    """Return a run's metric for each prompt, or None if the run has no outcome for the metric.

    - `metric`: "area", the mean over all tested n with L < n ≤ 2 L, or "at 1.2", at 1.2 L
    - `length`: L
    """
    found = graded(run, protocol)
    if metric == "area":
        lengths = [n for n in found if length < n <= 2 * length]
    else:
        lengths = [n for n in found if abs(n - float(metric.split()[1]) * length) < 1e-6]
    return np.mean([found[n] for n in lengths], 0) if lengths else None


def t_quantile(p: float, degrees: float) -> float:
    """Return the quantile of Student's t by bisection of the integral of its density.

    With t = √ν tan u the density becomes a constant times cos^(ν−1) u.
    """
    scale = exp(lgamma((degrees + 1) / 2) - lgamma(degrees / 2)) / pi**0.5
    weights = np.where(np.arange(4_001) % 2, 4.0, 2.0)  # Simpson's rule
    weights[[0, -1]] = 1
    low, high, middle = 0.0, pi / 2, pi / 4
    for _ in range(60):
        middle = (low + high) / 2
        heights = np.cos(np.linspace(0, middle, 4_001)) ** (degrees - 1)
        below = 0.5 + scale * (heights * weights).sum() * middle / 4_000 / 3
        low, high = (middle, high) if below < p else (low, middle)
    return degrees**0.5 * tan(middle)


def interval(outcomes: np.ndarray, share: bool) -> list[float]:
    """Return (mean, low, high) of outcomes (seed, prompt); all seeds share their prompts."""
    seeds, prompts = outcomes.shape
    mean = outcomes.mean()
    a, b = max(1, seeds - 1), max(1, prompts - 1)
    by_seed, by_prompt = outcomes.mean(1), outcomes.mean(0)
    seed = ((by_seed - mean) ** 2).sum() / a / seeds
    prompt = ((by_prompt - mean) ** 2).sum() / b / prompts
    rest = ((outcomes - by_seed[:, None] - by_prompt + mean) ** 2).sum() / (a * b)
    variance = max(seed + prompt - rest / (seeds * prompts), seed, prompt)
    spread = seed**2 / a + prompt**2 / b
    degrees = variance**2 / spread if spread > 0 else 1.0
    degrees = min(max(degrees, min(a, b)), 1_000)
    half = t_quantile(0.975, degrees) * variance**0.5
    if not share:
        return [mean, mean - half, mean + half]
    extreme = 0.025 ** (1 / prompts)  # Clopper and Pearson
    if mean in (0, 1):
        return [mean, 0.0, 1 - extreme] if mean == 0 else [mean, extreme, 1.0]
    logit, apart = np.log(mean / (1 - mean)), half / (mean * (1 - mean))
    return [mean, *(1 / (1 + np.exp(-(logit + sign * apart))) for sign in (-1, 1))]


def sign_flip(differences: Sequence[float]) -> float:
    """Return p of a sign-flip test: the share of flips with a sum at least as far from 0."""
    signs = np.array([*product((1, -1), repeat=len(differences))])
    sums = np.abs(signs @ np.array(differences))
    return float(np.mean(sums >= sums[0] * (1 - 1e-9) - 1e-12))


def holm(p: Sequence[float]) -> list[float]:
    """Adjust p of several tests by Holm's method."""
    adjusted, most = [0.0] * len(p), 0.0
    for rank, place in enumerate(np.argsort(p, kind="stable")):
        most = max(most, min(1.0, (len(p) - rank) * p[place]))
        adjusted[place] = most
    return adjusted


def recompute(folder: Path) -> Table:
    """Return all numbers of a study as a JSON document."""
    plan, runs = read(folder)
    lengths = {
        task: plan.get("trained") or min(run["trained"] for run in runs if run["task"] == task)
        for task in {run["task"] for run in runs}
    }
    rows = {}
    for run in runs:
        rows.setdefault((run["task"], run["label"]), {})[run["seed"]] = run

    def side(task: str, names: list[str]) -> dict[int, np.ndarray]:
        """Return, by seed, the mean outcome of the named rows for each prompt; more is better."""
        found = []
        for name in names:
            own, _, rest = name.partition(": ")
            own, rest = (own, rest) if own in plan["tasks"] and rest else (task, name)
            label, protocol, at = (rest, "", None)
            if (own, rest) not in rows:
                label, protocol, at = TERM.fullmatch(rest).groups()  # type: ignore[union-attr]
            length = lengths[own]
            metric = f"at {int(at) / length}" if at else plan["metric"]
            values = {
                seed: (-1 if in_bits(run) else 1) * x
                for seed, run in rows.get((own, label), {}).items()
                if (x := measured(run, metric, length, protocol or "")) is not None
            }
            found.append(values)
        seeds = set.intersection(*map(set, found))
        return {seed: np.mean([values[seed] for values in found], 0) for seed in sorted(seeds)}

    contrasts = []
    named = [sides for sides in plan["contrast"] if ": " in sides[0][0]]
    general = [sides for sides in plan["contrast"] if ": " not in sides[0][0]]
    for task, sides in [*product(plan["tasks"], general), *(("", sides) for sides in named)]:
        terms = [side(task, names) for names in sides]
        seeds = sorted(set.intersection(*map(set, terms)))
        if not seeds:
            continue
        apart = [terms[0][seed] - terms[1][seed] for seed in seeds]
        if len(terms) == 4:
            apart = [x - terms[2][n] + terms[3][n] for x, n in zip(apart, seeds, strict=True)]
        means = [float(x.mean()) for x in apart]
        difference = interval(np.array(apart), share=False)
        above = sum(x > 1e-9 for x in means)
        p = sign_flip(means)
        contrasts.append(
            {"task": task, "sides": sides, "seeds": len(seeds), "difference": difference}
            | {"above": above, "p": p}
        )
    for one, adjusted in zip(contrasts, holm([one["p"] for one in contrasts]), strict=True):
        one["holm"] = adjusted
    return {
        "study": folder.name,
        "runs": len(runs),
        "rows": [
            {
                "task": task,
                "row": label,
                "seeds": len(by_seed),
                "means": {
                    n: float(np.mean([graded(run)[n].mean() for run in by_seed.values()]))
                    for n in graded(next(iter(by_seed.values())))
                },
                "metric": interval(np.array(values), share=not in_bits(run))
                if (values := _values(by_seed, plan["metric"], lengths[task]))
                else None,
            }
            for (task, label), by_seed in rows.items()
            for run in [next(iter(by_seed.values()))]
        ],
        "contrasts": contrasts,
    }


def _values(by_seed: dict[int, Table], metric: str, length: int) -> list[np.ndarray]:
    found = [measured(run, metric, length) for _, run in sorted(by_seed.items())]
    return [x for x in found if x is not None]


if __name__ == "__main__":
    for name in sys.argv[1:]:
        print(json.dumps(recompute(Path(name)), indent=1))
