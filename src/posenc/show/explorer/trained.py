"""What models trained on short texts did at longer ones, seed by seed, for a scene of the story.

The outcomes lie in `studies/` of the repository, which is not installed; tools/explorer.py writes
what the scene shows of them into `trained.json`, and a test holds that against the stores.
"""

import json
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, TypedDict

from posenc.catalog import find

COPIED, READ = "shape-copy", "fair-text"  # folders of studies
DIGITS = 4

Curve = dict[str, list[float]]  # by length: of each seed the share that is right, or bits


class Trained(TypedDict):
    encoding: str  # its name in the catalogue
    curve: Curve
    cropped: Curve | None  # the same models, shown the last L tokens alone


class Outcomes(TypedDict):
    study: str  # its folder
    trained: int  # L, tokens
    seeds: int
    layers: int
    width: int
    steps: int
    rates: list[float]  # one for all rows, or those of which each took its best
    rows: list[Trained]


class Short(TypedDict):
    copied: Outcomes  # share of texts that are copied without a mistake
    read: Outcomes  # bits for the next character


def measured(studies: Path) -> Short:
    """Read both studies from their stores: seconds."""
    return {"copied": _outcomes(studies / COPIED), "read": _outcomes(studies / READ)}


@cache
def short() -> Short:
    """Read what is packaged."""
    return json.loads((files("posenc.show.explorer") / "trained.json").read_text("utf-8"))


def _outcomes(folder: Path) -> Outcomes:
    from posenc.lab.study import analysis, store

    contents = store.read(folder)
    plan, found = analysis.plan_of(contents), analysis.analyse(contents).to_json()
    assert plan is not None
    plain = {row.name for row in plan.encodings if not row.control}
    cropped = {
        row["encoding"].removesuffix(" cropped"): row
        for row in found["baselines"]
        if row["protocol"] == "cropped"
    }
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
            {
                "encoding": find(row["encoding"]).name,
                "curve": _beyond(row),
                "cropped": _beyond(cropped[row["encoding"]]) if cropped else None,
            }
            for row in found["rows"]
            if row["encoding"] in plain
        ],
    }


def _beyond(row: dict[str, Any]) -> Curve:
    """From the trained length on."""
    return {
        str(length): [round(one, DIGITS) for one in seeds]
        for length, seeds in row["curve"].items()
        if int(length) >= row["trained"]
    }
