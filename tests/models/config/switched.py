"""Change every key of a config that concerns positions, and compare the result with the models.

    python tests/models/config/switched.py [--json] [--sample [--half]] [model_type …]
    python tests/models/config/switched.py --record [--missing] [model_type …]

Each variant must be read as the model computes it, be rejected by name, or be rejected by
transformers itself. `--record` writes to switched.json the number of values of each key with each
outcome, by family; with `--missing` only for keys that are not in it yet.
"""

import json
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
import understood
from understood import _script, watched

from posenc.models.config import families, specify
from posenc.models.files.errors import ModelError

switches = _script("switches")
RECORD = Path(__file__).with_name("switched.json")


@dataclass(frozen=True)
class Switched:
    model_type: str
    values: dict[str, Any]
    outcome: str  # "equal", "refused", "impossible" or "wrong"
    why: str = ""


def variants(model_type: str) -> Iterator[dict[str, Any]]:
    known = families.family(model_type)
    assert known
    if not known.refused and known.kind not in ("parts", "nothing", "given"):
        yield from switches.switches(model_type)


def sample() -> list[tuple[str, dict[str, Any]]]:
    """Return for each key that any class has its first changed value in one of these classes."""
    having: dict[str, list[str]] = defaultdict(list)
    for model_type in understood.models():
        known = families.family(model_type)
        if known and not known.refused and known.kind not in ("parts", "nothing", "given"):
            for key in switches.stated(model_type):
                having[key].append(model_type)
    chosen = []
    for n, (key, names) in enumerate(sorted(having.items())):
        model_type = names[n % len(names)]
        values = next(switches.of(model_type, key), None)
        if values is not None:
            chosen.append((model_type, values))
    return chosen


def switched(model_type: str, values: dict[str, Any]) -> Switched:
    """Compare the specification of a config with changed values with the model."""
    done = lambda outcome, why="": Switched(model_type, values, outcome, why)  # noqa: E731
    known = families.family(model_type)
    assert known
    given = {**base(model_type, values), **values}
    file = {"model_type": model_type, **given}
    try:
        config = watched.config(model_type, **json.loads(json.dumps(given)))
        model = watched.built(config)
    except Exception as error:
        return done("impossible", f"{type(error).__name__}: {error}")
    if runs(model_type):
        try:
            understood._last[:] = config, watched.run(config, model)
        except Exception as error:
            return done("impossible", f"{type(error).__name__}: {error}")
    try:
        spec = specify(file)
    except ModelError as error:
        return done("refused", str(error))
    except Exception as error:
        return done("wrong", f"{type(error).__name__}: {error}")
    try:
        wrong = [*understood.of_stacks(model_type, config, known, spec)]
        wrong += _saved(model_type, config, spec)
    except Exception as error:
        return done("wrong", f"cannot be compared: {type(error).__name__}: {error}")
    return done("wrong", "; ".join(wrong)) if wrong else done("equal")


def _saved(model_type: str, config: Any, spec: Any) -> Iterator[str]:
    """Return the config as transformers would save it, if it has the same meaning."""
    file = json.loads(json.dumps(config.to_dict(), default=str))
    try:
        again = watched.CONFIG_MAPPING[model_type].from_dict(json.loads(json.dumps(file)))
    except Exception:
        return
    if json.loads(json.dumps(again.to_dict(), default=str)) != file:
        return
    try:
        saved = specify(file)
    except ModelError:
        return
    if families.family(model_type).parts:  # type: ignore[union-attr]
        return  # keys that only the saved file has
    if difference := understood._unlike(saved, spec):
        yield f"as saved, {difference}"


def base(model_type: str, values: dict[str, Any]) -> dict[str, Any]:
    """Return settings for a model with few layers."""
    mended = watched.MENDED.get(model_type, {})
    name = families.family(model_type).keys.get("num_hidden_layers", "num_hidden_layers")  # type: ignore[union-attr]
    lists = [v for v in {**mended, **values}.values() if isinstance(v, list)]
    if name in values or "num_hidden_layers" in mended or any(len(v) > 8 for v in lists):
        return mended
    try:
        config = watched.config(model_type, **{name: understood.DEPTH})
    except Exception:
        return mended
    typed = getattr(config, "layer_types", None) or [0] * understood.DEPTH
    return {**mended, name: understood.DEPTH} if len(typed) == understood.DEPTH else mended


_runs: dict[str, bool] = {}


def runs(model_type: str) -> bool:
    """Test whether the default model runs on four tokens."""
    if model_type not in _runs:
        try:
            watched.run(watched.config(model_type, **base(model_type, {})))
            _runs[model_type] = True
        except Exception:
            _runs[model_type] = False
    return _runs[model_type]


def recorded() -> dict[str, dict[str, dict[str, int]]]:
    """Return the record: family → key → outcome → number of values."""
    return json.loads(RECORD.read_text("utf-8")) if RECORD.exists() else {}


def record(done: Iterable[Switched]) -> None:
    """Write the outcomes of keys to the record, replacing old ones."""
    lines = recorded()
    fresh: dict[str, dict[str, dict[str, int]]] = {}
    for one in done:
        key = [*one.values][-1]  # after the keys that it needs
        counts = fresh.setdefault(one.model_type, {}).setdefault(key, {})
        counts[one.outcome] = counts.get(one.outcome, 0) + 1
    for name, keys in fresh.items():
        lines[name] = lines.get(name, {}) | keys
    text = ",\n".join(f"{json.dumps(name)}: {json.dumps(lines[name])}" for name in sorted(lines))
    RECORD.write_text(f"{{\n{text}\n}}\n", "utf-8")


def main() -> None:
    watched.quiet()
    names = [name for name in sys.argv[1:] if not name.startswith("--")] or understood.models()
    if "--record" in sys.argv:
        past = recorded() if "--missing" in sys.argv else {}
        for model_type in names:
            had = past.get(model_type, {})
            missing = [values for values in variants(model_type) if [*values][-1] not in had]
            record([switched(model_type, values) for values in missing])
        return
    every = ((model_type, values) for model_type in names for values in variants(model_type))
    chosen = sample()[:: 2 if "--half" in sys.argv else 1] if "--sample" in sys.argv else every
    done = (switched(*one) for one in chosen)
    if "--json" in sys.argv:
        for one in done:
            print(json.dumps(vars(one)), flush=True)
        return
    counts: Counter[str] = Counter()
    refused: dict[str, list[str]] = defaultdict(list)
    for one in done:
        counts[one.outcome] += 1
        if one.outcome == "wrong":
            print(f"WRONG {one.model_type} {json.dumps(one.values)[:200]}: {one.why}", flush=True)
        elif one.outcome == "refused":
            refused[re.sub(r", got .*|\d+", "", one.why)].append(one.model_type)
    for why, names in sorted(refused.items(), key=lambda item: -len(item[1])):
        print(f"{len(names):5} refused, {why}: {' '.join(sorted(set(names)))[:120]}")
    print(f"{counts.total()} variants:", ", ".join(f"{n} {which}" for which, n in counts.items()))


if __name__ == "__main__":
    main()
