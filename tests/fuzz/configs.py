"""Configs, changed at random: each is read, or refused in one line, within two seconds.

    python tests/fuzz/configs.py --seconds 20 --seed 0

The seeds are published configs, the defaults of each family's class, and metadata of GGUF files. A
change sets, removes or adds a key, anywhere; moves a value, or puts one there that no config should
hold. The frequencies of each changed config are then computed, for short texts and long ones, and
each 20th config is inspected as `posenc inspect` does. Each failure is printed with the fewest keys
that show it.
"""

import argparse
import json
import random
import sys
import time
import warnings
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "helpers"))
import torch
from published import KINDS, published

from posenc.models.config import families, gguf, specify
from posenc.models.config.gguf import specify_gguf
from posenc.models.config.spec import Rotary, Spec
from posenc.models.files.errors import ModelError
from posenc.models.inspection import inspect

SECONDS = 2.0  # that one config may take
NUMBERS = [0, 1, 2, 3, 7, 8, 64, 128, 4096, 131072, 10**6, 2**31, 2**53, 2**53 + 1, 10**30, 10**400]
NUMBERS += [-1, -0.0, 0.5, 1.5, 5e-324, 1e-308, 1e-30, 1e-9, 1e9, 1e30, 1e300, 1e308]
NUMBERS += [float("inf"), float("nan"), 2.0**53]
WORDS = ["", "default", "linear", "ntk", "dynamic", "yarn", "longrope", "su", "llama3", "mrope"]
WORDS += ["proportional", "full_attention", "sliding_attention", "absolute", "relative_key", "\x1b"]
VALUES = [
    *NUMBERS,
    *WORDS,
    None,
    True,
    False,
    [],
    {},
    [1],
    [[]],
    [None],
    {"a": {}},
    ["c2p"],
    [1e308],
]
SCALINGS: list[dict[str, Any]] = [
    {"rope_type": "linear", "factor": 4.0},
    {"rope_type": "dynamic", "factor": 4.0},
    {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 4096},
    {"rope_type": "proportional", "partial_rotary_factor": 0.5},
    {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    },
    {
        "rope_type": "longrope",
        "short_factor": [1.0] * 64,
        "long_factor": [2.0] * 64,
        "original_max_position_embeddings": 4096,
    },
    {"rope_type": "default", "mrope_section": [16, 24, 24], "mrope_interleaved": True},
]
GGUF = {
    "context_length": 4096,
    "embedding_length": 2048,
    "block_count": 16,
    "attention.head_count": 16,
    "attention.head_count_kv": 8,
    "attention.key_length": 128,
    "attention.sliding_window": 1024,
    "rope.freq_base": 1e4,
    "rope.dimension_count": 128,
    "rope.scaling.type": "yarn",
    "rope.scaling.factor": 4.0,
    "rope.scaling.original_context_length": 1024,
    "rope.scaling.attn_factor": 1.0,
    "rope.scaling.yarn_attn_factor": 1.0,
    "rope.scaling.yarn_log_multiplier": 0.1,
    "feed_forward_length": 8192,
}


def seeds() -> list[dict[str, Any]]:
    """Published configs, and the defaults of each family under its own names of keys."""
    found = [published(name) for name in KINDS]
    for name in families.model_types():
        known = families.family(name)
        assert known
        own = {known.keys.get(key, key): value for key, value in known.defaults.items()}
        found.append({"model_type": name, **deepcopy(own)})
    for name in gguf.MODELS:
        own = {f"{name}.{key}": value for key, value in GGUF.items()}
        found.append({"general.architecture": name, **own})
    return found


def changed(config: dict[str, Any], rng: random.Random, keys: list[str]) -> dict[str, Any]:
    """A copy with one to five changes."""
    made = deepcopy(config)
    for _ in range(rng.randint(1, 5)):
        _change(made, rng, keys)
    return made


def _change(made: dict[str, Any], rng: random.Random, keys: list[str]) -> None:
    where = rng.choice(list(_objects(made)))
    key = rng.choice([*where, rng.choice(keys)])
    old = where.get(key)
    match rng.randrange(8):
        case 0:
            where.pop(key, None)
        case 1:
            where[rng.choice(["rope_scaling", "rope_parameters"])] = deepcopy(rng.choice(SCALINGS))
        case 2:
            where[rng.choice(keys)] = deepcopy(old)
        case 3 if isinstance(old, list) and old:
            old[rng.randrange(len(old))] = deepcopy(rng.choice(VALUES))
        case 4 if isinstance(old, (int, float)) and old == old and abs(old) < 1e300:
            where[key] = rng.choice([old + 1, old - 1, 2 * old, -old, old / 2, float(old)])
        case 5 if isinstance(old, list):
            where[key] = rng.choice([old[:-1], old * 2, old[::-1], [old]])
        case 6:
            where[key] = {rng.choice(keys): deepcopy(old)}
        case _:
            where[key] = deepcopy(rng.choice(VALUES))


def _objects(value: Any) -> Iterator[dict[str, Any]]:
    """The object and all that it holds."""
    if isinstance(value, dict):
        yield value
        for inner in value.values():
            yield from _objects(inner)


def measured(spec: Spec) -> None:
    """Compute frequencies of a config that was read, at short and at great length."""
    for part in (spec, *spec.parts.values()):
        turns = {layer.encoding for layer in part.layers if isinstance(layer.encoding, Rotary)}
        for turn in turns:
            for length in (1, part.context or 4096):
                theta = turn.frequencies(length)
                assert theta.isfinite().all(), f"θ of {turn} is not finite"
        if part is not spec:
            measured(part)


def failure(config: dict[str, Any], path: Path | None = None) -> str:
    """Say what is wrong with how a config is met, also as a file at `path`; "" if all is well.

    One that took too long is met again: it may have imported something, or waited for a core.
    """
    said = _failure(config, path)
    for _ in range(2):
        said = _failure(config, path) if said.startswith("took") else said
    return said


def _failure(config: dict[str, Any], path: Path | None) -> str:
    begun = time.process_time()
    try:
        if "general.architecture" in config:
            measured(specify_gguf(config, {}, "x.gguf"))
        else:
            measured(specify(config))
            if path is not None:
                path.write_text(json.dumps(config))
                inspect(path, target=1_000_000)
    except ModelError as error:
        if "\n" in str(error) or len(str(error)) > 1_000:
            return f"not one line: {str(error)[:200]!r}"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    taken = time.process_time() - begun
    return f"took {taken:.1f} s" if taken > SECONDS else ""


def smaller(config: dict[str, Any], kind: str, path: Path | None = None) -> dict[str, Any]:
    """The same failure from fewer keys."""
    for place in list(_objects(config)):
        for key in list(place):
            value = place.pop(key)
            if failure(config, path).partition(":")[0] != kind:
                place[key] = value
    return config


def fuzz(seconds: float, seed: int, runs: int = 10**9) -> tuple[int, dict[str, dict[str, Any]]]:
    """Return the number of configs met, and the failures: what went wrong, and the config."""
    rng, of = random.Random(seed), seeds()
    keys = sorted({key for config in of for place in _objects(config) for key in place})
    end, count, failures = time.monotonic() + seconds, 0, {}
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # processor time is counted
    with TemporaryDirectory() as folder:
        while time.monotonic() < end and count < runs:
            config = changed(rng.choice(of), rng, keys)
            path = Path(folder) / "config.json" if count % 20 == 0 else None
            wrong = failure(config, path)
            count += 1
            if wrong and wrong not in failures:
                failures[wrong] = smaller(config, wrong.partition(":")[0], path)
    torch.set_num_threads(threads)
    return count, failures


def main() -> None:
    given = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    given.add_argument("--seconds", type=float, default=20.0)
    given.add_argument("--seed", type=int, default=0)
    args = given.parse_args()
    warnings.simplefilter("error")
    count, failures = fuzz(args.seconds, args.seed)
    for wrong, config in failures.items():
        print(f"{wrong}\n    {json.dumps(config)[:2000]}")
    print(f"{count} configs, {len(failures)} failures")
    sys.exit(bool(failures))


if __name__ == "__main__":
    main()
