"""A suite: the study plans by which the arena measures every encoding, and their digest.

A suite is a TOML file in this folder. Each table of `studies` is the plan of a study (see
`posenc.lab.study.plan`) without the measured encoding, which is added as a row named `entry`.
`draft` is the reason why a suite is not final, and `seconds` the time of a cell of each study.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any

from posenc.lab.study.plan import Plan, PlanError
from posenc.support.names import find, is_own

FOLDER = Path(__file__).parent
NEWEST = "v1"
ENTRY = "entry"  # the label of the measured encoding's row
OBLIGATORY = ("nope", "rope", "rope in a window")  # rows of every study, also read cropped


@dataclass(frozen=True)
class Suite:
    """A suite of studies, with the plan of each except for the encoding to be measured."""

    name: str
    studies: Mapping[str, Mapping[str, Any]]
    draft: str = ""  # reason why the suite is a draft; empty if it is final
    seconds: Mapping[str, float] = field(default_factory=dict)  # core seconds of a cell, by study

    @classmethod
    def named(cls, name: str = NEWEST) -> "Suite":
        """Read the suite with this name from the arena's folder. Raises PlanError if unknown."""
        known = sorted(path.stem for path in FOLDER.glob("*.toml"))
        if name not in known:
            raise PlanError(f"`--suite` must be one of {', '.join(known)}, got {name!r:.60}.")
        content = tomllib.loads((FOLDER / f"{name}.toml").read_text("utf-8"))
        return cls(name, content["studies"], content.get("draft", ""), content.get("seconds", {}))

    def hours(self, name: str) -> float | None:
        """Estimate the core hours of one study with all trials; None if times are not known."""
        if name not in self.seconds:
            return None
        plan = self.plans("alibi")[name]
        return (len(plan.cells()) + len(plan.trials())) * self.seconds[name] / 3_600

    def plans(self, encoding: str) -> dict[str, Plan]:
        """Return the plans of all studies for an encoding of the catalogue or `module.py:Mine`.

        Raises PlanError for an encoding that is already a row of every study, or that cannot be
        made.
        """
        try:
            named = encoding if is_own(encoding) else find(encoding)["name"]
        except LookupError as error:
            raise PlanError(f"arena: {error.args[0]}") from None
        if named in OBLIGATORY:
            raise PlanError(
                f"the entry must differ from {', '.join(OBLIGATORY)}, which are rows of every"
                f" study, got {named}. Name another."
            )
        row = {"name": ENTRY, "encoding": encoding}
        return {
            name: Plan.of(
                {**content, "encodings": [*content["encodings"], row]}, f"{self.name}, {name}"
            )
            for name, content in self.studies.items()
        }

    @cached_property
    def digest(self) -> str:
        """The SHA-256 of the canonical texts of all plans, for the entry `alibi`."""
        texts = (f"{name}\n{plan.text}" for name, plan in self.plans("alibi").items())
        return sha256("\n".join(texts).encode()).hexdigest()
