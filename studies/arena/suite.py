"""A suite: studies that every encoding of the arena goes through, with a digest of their plans.

A suite is a TOML file beside this one. Each table of `studies` is the plan of a study (see
`posenc.lab.study.plan`) without the encoding that is measured, which gets a row named `entry`.
`draft` gives the reason why a suite is not final, and `seconds` what a cell of a study takes.
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
ENTRY = "entry"  # the label of the row of whoever takes part
OBLIGATORY = ("nope", "rope", "rope in a window")  # rows of every study; crop is read of them


@dataclass(frozen=True)
class Suite:
    """Plans that lack the encoding which is measured, by the name of their study."""

    name: str
    studies: Mapping[str, Mapping[str, Any]]
    draft: str = ""  # the reason why it is a draft; empty: it is none
    seconds: Mapping[str, float] = field(
        default_factory=dict
    )  # of one core, for a cell of each study

    @classmethod
    def named(cls, name: str = NEWEST) -> "Suite":
        """Read a suite that comes with the package. Raises PlanError for another name."""
        known = sorted(path.stem for path in FOLDER.glob("*.toml"))
        if name not in known:
            raise PlanError(f"no suite is called {name!r:.60}: known are {', '.join(known)}.")
        content = tomllib.loads((FOLDER / f"{name}.toml").read_text("utf-8"))
        return cls(name, content["studies"], content.get("draft", ""), content.get("seconds", {}))

    def hours(self, name: str) -> float | None:
        """The core hours of one study with all its trials; None where its pace is not known."""
        if name not in self.seconds:
            return None
        plan = self.plans("alibi")[name]
        return (len(plan.cells()) + len(plan.trials())) * self.seconds[name] / 3_600

    def plans(self, encoding: str) -> dict[str, Plan]:
        """The plans of all studies for an encoding of the catalogue or `module.py:Mine`.

        Raises PlanError for one that is a row of every arena already, or that cannot be made.
        """
        try:
            named = encoding if is_own(encoding) else find(encoding)["name"]
        except LookupError as error:
            raise PlanError(f"arena: {error.args[0]}") from None
        if named in OBLIGATORY:
            raise PlanError(f"{named} is a row of every arena, beside the entry: name another.")
        row = {"name": ENTRY, "encoding": encoding}
        return {
            name: Plan.of(
                {**content, "encodings": [*content["encodings"], row]}, f"{self.name}, {name}"
            )
            for name, content in self.studies.items()
        }

    @cached_property
    def digest(self) -> str:
        """The SHA-256 of all plans, with one spelling of each, for the entry `alibi`."""
        texts = (f"{name}\n{plan.text}" for name, plan in self.plans("alibi").items())
        return sha256("\n".join(texts).encode()).hexdigest()
