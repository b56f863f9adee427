"""RoPE wavelengths of published models, with context lengths before and after extension."""

import json
from dataclasses import dataclass, replace
from importlib.resources import files
from math import inf, pi

from posenc.models.config import specify
from posenc.models.config.spec import Rotary


@dataclass(frozen=True)
class Published:
    """Published model: name, lengths, and the rotation (RoPE) of its layers without a window."""

    name: str
    base: float
    method: str  # "default", or the scaling method of its frequencies
    trained: int  # tokens of the training before context extension
    context: int  # tokens that the config states
    wavelengths: list[float]  # tokens; infinite for pairs that are not rotated

    @property
    def unfinished(self) -> int:
        """Number of rotary pairs that complete no full turn within the context."""
        return sum(wave > self.context for wave in self.wavelengths)


def configs() -> dict[str, dict[str, object]]:
    """Return shortened configs of published models (fewer layers), by model name."""
    return json.loads((files("posenc.models") / "published.json").read_text("utf-8"))


def models() -> list[Published]:
    """Return every model of published.json, sorted by context length."""
    described = [_described(name, config) for name, config in configs().items()]
    return sorted(described, key=lambda model: (model.context, max(model.wavelengths)))


def _described(name: str, config: dict[str, object]) -> Published:
    spec = specify(config, name).text_stack
    turning = [layer for layer in spec.layers if isinstance(layer.encoding, Rotary)]
    layer = next((seeing for seeing in turning if not seeing.window), turning[0])
    assert isinstance(layer.encoding, Rotary)
    rotary, context = layer.encoding, spec.context or 0
    theta = replace(rotary, backward=False).theta(context)
    waves = [2 * pi / turns if turns else inf for turns in theta]
    trained = rotary.trained if rotary.method != "default" else context
    return Published(name, rotary.base, rotary.method, trained or context, context, waves)
