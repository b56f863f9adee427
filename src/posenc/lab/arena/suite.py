"""A suite: the study plans by which the arena measures every encoding, and their digest.

A suite is a TOML file in this folder. Each table of `studies` is the plan of a study (see
`posenc.lab.study.plan`) without the measured encoding. The encoding is added as a row named
`entry`, or as each row of `entries`, such as a second one with another learning rate. `draft` is
the reason why a suite is not final, and `seconds` the time of a cell of each study. `claims.toml`
has what papers claim of their encodings, which is the hypothesis of an entry of that name.
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
CLAIMS = tomllib.loads((FOLDER / "claims.toml").read_text("utf-8"))["claims"]
NEWEST = "v2"
ENTRY = "entry"  # the label of the measured encoding's row, and the beginning of its other labels


@dataclass(frozen=True)
class Suite:
    """A suite of study plans, to which `plans` adds the encoding to be measured (the entry)."""

    name: str
    studies: Mapping[str, Mapping[str, Any]]
    draft: str = ""  # reason why the suite is a draft; empty if it is final
    seconds: Mapping[str, float] = field(default_factory=dict)  # core seconds of a cell, by study

    @classmethod
    def named(cls, name: str = NEWEST) -> "Suite":
        """Read the suite with this name from the arena's folder. Raises PlanError if unknown."""
        known = sorted(
            path.stem for path in FOLDER.glob("*.toml") if path != FOLDER / "claims.toml"
        )
        if name not in known:
            raise PlanError(f"`--suite` must be one of {', '.join(known)}, got {name!r:.60}.")
        content = tomllib.loads((FOLDER / f"{name}.toml").read_text("utf-8"))
        return cls(name, content["studies"], content.get("draft", ""), content.get("seconds", {}))

    def hours(self, name: str) -> float | None:
        """Estimate the core hours of the study `name`, including trial runs; None if unknown."""
        if name not in self.seconds:
            return None
        plan = self.plans("alibi")[name]
        return (len(plan.cells()) + len(plan.trials())) * self.seconds[name] / 3_600

    def plans(self, encoding: str) -> dict[str, Plan]:
        """Return the plan of each study with this encoding: a catalogue name or `module.py:Mine`.

        Raises PlanError for an encoding that is already a row of every study, or that cannot be
        made.
        """
        try:
            slug = encoding if is_own(encoding) else find(encoding)["name"]
        except LookupError as error:
            raise PlanError(f"arena: {error.args[0]}") from None
        return {
            name: self._plan(name, dict(content), encoding, slug)
            for name, content in self.studies.items()
        }

    def _plan(self, name: str, content: dict[str, Any], encoding: str, slug: str) -> Plan:
        rows = content["encodings"]
        theirs = sorted({row if isinstance(row, str) else row["encoding"] for row in rows})
        if slug in theirs:
            raise PlanError(
                f"the entry must differ from {', '.join(theirs)}, which every study of the arena"
                f" includes already, got {slug}. Name another encoding."
            )
        entries = [
            row | {"encoding": encoding} for row in content.pop("entries", [{"name": ENTRY}])
        ]
        content["encodings"] = [*rows, *entries]
        if slug in CLAIMS:
            content["hypothesis"] = CLAIMS[slug]["claim"]
        return Plan.of(content, f"{self.name}, {name}")

    @cached_property
    def digest(self) -> str:
        """The SHA-256 of the plans of all studies, with ALiBi as the measured encoding."""
        texts = (f"{name}\n{plan.text}" for name, plan in self.plans("alibi").items())
        return sha256("\n".join(texts).encode()).hexdigest()


def is_entry(label: str) -> bool:
    """Test whether a row label, such as "entry" or "entry 1e-3", is of the measured encoding."""
    return label.split(" ")[0] == ENTRY
