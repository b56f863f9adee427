"""Record published configs with the layers that transformers builds from them.

    python tests/models/config/published_files.py --record [name …]

tests/data/published_files.json has the keys of each file that concern positions, in their original
spelling: older names, patterns, flat and nested settings, keys that a class removes. It also has
the layers of the transformers model, which is built on the meta device and run on four tokens.
`--record` writes these again.
"""

import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
from understood import CROSS, watched

from posenc.models.config import families
from posenc.models.config.spec import Layer, Rotary, Spec

DATA = Path(__file__).parents[2] / "data/published_files.json"


def files() -> dict[str, dict[str, Any]]:
    """Return for each published file its config, kinds of layers, and kind of each layer."""
    return json.loads(DATA.read_text("utf-8"))


def by_transformers(file: dict[str, Any]) -> dict[str, Any]:
    """Return the settings of each text layer in the model that transformers builds."""
    file = json.loads(json.dumps(file))
    name = families.ALIASES.get(file["model_type"], file["model_type"])
    config = watched.CONFIG_MAPPING[name].from_dict({**file, "model_type": name})
    seen = watched.run(config.get_text_config())
    attended = {call.layer: call for call in seen.attended if not CROSS.search(call.where)}
    turned = {call.layer: call for call in reversed(seen.main)}
    count = seen.config.num_hidden_layers
    return _grouped([_done(seen, attended.get(n), turned.get(n)) for n in range(count)])


def _done(seen: Any, at: Any, turned: Any) -> dict[str, Any] | None:
    if at is None and seen.attended:
        return None
    done: dict[str, Any] = {}
    if at is not None:  # other models bypass the registry of attention
        done = {"back": at.sees and at.sees[0], "ahead": at.sees and at.sees[1], "scale": at.scale}
    if turned is not None:
        rotation = watched.rotation(seen, turned)
        behind = at is not None and rotation.dim < at.query[-1] and watched.after(turned)
        done |= _turns(rotation.theta, rotation.gain, rotation.layout)
        done["trailing"] = rotation.place == "trailing" or behind
    return done


def by_posenc(spec: Spec) -> dict[str, Any]:
    """Return the same settings from the specification."""
    return _grouped([_said(layer, spec) for layer in spec.text_stack.layers])


def _said(layer: Layer, spec: Spec) -> dict[str, Any] | None:
    if not layer.attends:
        return None
    ahead = 0 if layer.causal else layer.window and layer.window - 1
    said: dict[str, Any] = {"back": layer.window, "ahead": ahead, "scale": layer.scale}
    if layer.unsupported:  # not only a window
        said = {"scale": layer.scale}
    if isinstance(turn := layer.encoding, Rotary):
        theta = turn.frequencies(watched.TOKENS)
        theta = theta.sum(0) if theta.ndim == 2 else theta
        said |= _turns(theta[theta != 0], turn.gain, turn.layout or "")
        said["scale"] = layer.scale or turn.dim**-0.5 * turn.logit_gain
        said["trailing"] = turn.trailing
    return said


def _turns(theta: Any, gain: float, layout: str) -> dict[str, Any]:
    fastest, slowest = float(theta.abs().max()), float(theta.abs().min())
    sums = {"sum": float(theta.sum()), "fastest": fastest, "slowest": slowest}
    return {"pairs": len(theta), **sums, "gain": gain, "layout": layout}


def _grouped(layers: list[dict[str, Any] | None]) -> dict[str, Any]:
    rounded = [layer and {key: _rounded(value) for key, value in layer.items()} for layer in layers]
    kinds = [kind for n, kind in enumerate(rounded) if kind not in rounded[:n]]
    return {"kinds": kinds, "layers": "".join(str(kinds.index(layer)) for layer in rounded)}


def _rounded(value: Any) -> Any:
    return float(f"{value:.5g}") if isinstance(value, float) else value


def main() -> None:
    watched.quiet()
    held = files()
    for name in sys.argv[2:] or held:
        held[name] |= by_transformers(held[name]["config"])
    lines = (f"{json.dumps(name)}: {json.dumps(held[name])}" for name in held)
    DATA.write_text("{\n" + ",\n".join(lines) + "\n}\n", "utf-8")


if __name__ == "__main__":
    main()
