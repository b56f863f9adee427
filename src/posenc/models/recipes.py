"""How the makers of a model stretch it: recipes.toml, a table with the source of each entry."""

import tomllib
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files

from posenc.models.config.spec import Spec


@dataclass(frozen=True)
class Recipe:
    """What the makers of some models give for longer texts."""

    names: str  # the models
    model_types: tuple[str, ...]  # of the config with the rope settings
    context: int  # max_position_embeddings of the published config
    trained: int  # tokens that the model was trained on
    source: str  # where it is written
    read: str  # when that was read: an ISO date
    method: str = "yarn"
    factors: dict[int, float] = field(default_factory=dict)  # tokens -> factor, if not their ratio

    def factor_for(self, to: int | None) -> float | None:
        """The makers' factor for texts of `to` tokens; None where they give no other than to/L."""
        return self.factors.get(to) if to else None


def recipe_of(spec: Spec) -> Recipe | None:
    """Find the recipe for a model as it was published: its type, and the length in its config."""
    if any(turn.method != "default" for turn in spec.rotary):
        return None
    return next(
        (one for one in recipes() if spec.model in one.model_types and spec.context == one.context),
        None,
    )


@cache
def recipes() -> tuple[Recipe, ...]:
    """Every recipe of recipes.toml."""
    content = tomllib.loads((files("posenc.models") / "recipes.toml").read_text("utf-8"))
    return tuple(
        Recipe(
            **line
            | {
                "model_types": tuple(line["model_types"]),
                "factors": {int(to): float(x) for to, x in line.get("factors", {}).items()},
            }
        )
        for line in content["recipe"]
    )
