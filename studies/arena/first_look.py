"""Write the baselines of `posenc arena --quick` from the store of their study.

python -m studies.arena.first_look
"""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from posenc.lab.arena import quick
from posenc.lab.study import analysis, store
from posenc.lab.study.plan import PlanError

STUDY = Path(__file__).parents[1] / "content-or-place-10"
DIGITS = 4  # of shares and of seconds


def measured(folder: Path = STUDY) -> dict[str, Any]:
    """Return the plan and the results of a study as plain data. Raises PlanError without cells."""
    contents = store.read(folder)
    plan = analysis.plan_of(contents)
    if plan is None or not contents.records:
        raise PlanError(
            f"{folder} must be a study with trained cells, got none. Run it with `posenc study`."
        )
    rows = [asdict(row) for row in quick.results(analysis.analyse(contents))]
    for row in rows:
        row["means"] = {str(n): round(mean, DIGITS) for n, mean in row["means"].items()}
        row["seconds"] = None if row["seconds"] is None else round(row["seconds"], DIGITS)
    return {"plan": plan.text, "rows": rows}


if __name__ == "__main__":
    text = json.dumps(measured(), indent=1, ensure_ascii=False)
    Path(str(quick.STORED)).write_text(text + "\n", "utf-8")
