"""Write the study results that the explorer shows; a test compares them with stored outcomes."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import posenc
from posenc.catalog import find
from posenc.lab.study import analysis, store
from posenc.show.explorer.packing import to_json
from posenc.show.explorer.story import Outcomes

STUDY = Path(__file__).parent.parent / "studies/shape-copy"
PACKAGED = Path(posenc.__file__).parent / "show/explorer/study_curves.json"
DIGITS = 4


def measured() -> Outcomes:
    """Compute the outcomes from the study's store, which takes seconds."""
    contents = store.read(STUDY)
    plan, found = analysis.plan_of(contents), analysis.analyse(contents).to_json()
    assert plan is not None
    plain = {row.name for row in plan.encodings if not row.control}
    first, profile = found["rows"][0], plan.profile
    return {
        "study": STUDY.name,
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


def _beyond(row: dict[str, Any]) -> dict[str, list[float]]:
    """Select the outcomes of an encoding at the trained length and at longer lengths."""
    return {
        str(length): [round(one, DIGITS) for one in seeds]
        for length, seeds in row["curve"].items()
        if int(length) >= row["trained"]
    }


def write(outcomes: Mapping[str, Any], path: Path) -> None:
    """Write outcomes as JSON with one line for each key and each row, so that diffs are short."""
    parts = (f"{json.dumps(key)}:{_lines(value)}" for key, value in outcomes.items())
    path.write_text("{\n" + ",\n".join(parts) + "\n}\n", "utf-8")


def _lines(value: Any) -> str:
    return (
        "[\n" + ",\n".join(map(to_json, value)) + "]" if isinstance(value, list) else to_json(value)
    )


if __name__ == "__main__":
    write(measured(), PACKAGED)
