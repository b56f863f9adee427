"""Study results by text length and seed, for a scene of the explorer's story.

The stores are in `studies/` of the repository, which is not installed. `tools/explorer.py` writes
the outcomes into `study_curves.json`, and a test compares them with the store.
"""

import json
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, TypedDict

from posenc.catalog import find

COPIED = "shape-copy"  # a folder of studies
DIGITS = 4

Curve = dict[str, list[float]]  # by length, for each seed the share of texts that are right


class Trained(TypedDict):
    encoding: str  # name in the catalogue
    curve: Curve


class Outcomes(TypedDict):
    study: str  # name of the study's folder
    trained: int  # L, tokens
    seeds: int
    layers: int
    width: int
    steps: int
    rates: list[float]  # one for all rows, or candidates of which each row used its best
    rows: list[Trained]


@cache
def short() -> Outcomes:
    """Read the packaged outcomes of the study of short texts."""
    return json.loads((files("posenc.show.explorer") / "study_curves.json").read_text("utf-8"))


def measured(studies: Path) -> Outcomes:
    """Compute the outcomes from the study's store, which takes seconds."""
    from posenc.lab.study import analysis, store

    folder = studies / COPIED
    contents = store.read(folder)
    plan, found = analysis.plan_of(contents), analysis.analyse(contents).to_json()
    assert plan is not None
    plain = {row.name for row in plan.encodings if not row.control}
    first, profile = found["rows"][0], plan.profile
    return {
        "study": folder.name,
        "trained": first["trained"],
        "seeds": len(first["seeds"]),
        "layers": profile.layers,
        "width": profile.width,
        "steps": profile.steps,
        "rates": [*plan.rates] or [profile.rate],
        "rows": [
            {"encoding": find(row["encoding"]).name, "curve": _beyond(row)}
            for row in found["rows"]
            if row["encoding"] in plain
        ],
    }


def _beyond(row: dict[str, Any]) -> Curve:
    """Select the outcomes of an encoding at the trained length and at longer lengths."""
    return {
        str(length): [round(one, DIGITS) for one in seeds]
        for length, seeds in row["curve"].items()
        if int(length) >= row["trained"]
    }
