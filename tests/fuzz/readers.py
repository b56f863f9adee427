"""Files of models, changed at random and led by coverage: each is read, or refused in one line.

    python tests/fuzz/readers.py --seconds 20 --seed 0

Configs, safetensors, GGUF and index files are read as `posenc inspect` reads them, tensors
included. The seeds are the hostile files of tests/models/test_hostile_files.py and good files of
each kind. An input that fails is written to the working directory as `crash-…`: repeat it with
`--again`, and add it to the tests there. A run that finds no new units measured no coverage, and is
a failure too. Needs atheris, which the extra `fuzz` installs.
"""

import argparse
import json
import os
import runpy
import struct
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "helpers"))
import torch  # noqa: F401  (before anything is instrumented)

try:
    import atheris
except ImportError:
    sys.exit("fuzzing the readers needs atheris: python -m pip install atheris")

with atheris.instrument_imports(include=["posenc.models"], enable_loader_override=False):
    from posenc.models import config
    from posenc.models.config.gguf import specify_gguf
    from posenc.models.files import folder as files
    from posenc.models.files.errors import ModelError
    from posenc.models.weights import open_weights

# `published` imports posenc.models; the fuzzer does not cover modules imported before it starts
from published import KINDS, published

NAMES = (  # what the first byte of an input chooses from
    "config.json", "model.safetensors", "header.safetensors", "model.gguf",
    "model.safetensors.index.json",
)  # fmt: skip
SHARD = "one.safetensors"  # what an index may name
FEW = 4096  # numbers of a tensor that are read
LARGEST = 8192  # bytes of an input


def safetensors(header: bytes, data: bytes) -> bytes:
    return struct.pack("<Q", len(header)) + header + data


GOOD = safetensors(b'{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}', bytes(8))


def read(name: str, folder: Path) -> None:
    """Read all that a command would read of it."""
    path = folder / name
    if name == "config.json":
        spec = config.specify(files.read_json(path))
        for turn in spec.rotary[:2]:
            turn.frequencies(4096)
        return
    weights = open_weights(files.find_files(path))
    if name.endswith(".gguf"):
        try:
            specify_gguf(weights.metadata, weights.infos, name)
        except ModelError as error:
            one_line(error)
    for key, info in list(weights.infos.items())[:16]:
        if info.elements <= FEW:
            try:
                weights[key]
            except ModelError as error:
                one_line(error)


def one_line(error: ModelError) -> None:
    said = str(error)
    assert 0 < len(said) < 2000, f"not one line: {said[:300]!r}"
    assert "\n" not in said, f"not one line: {said[:300]!r}"


def attempt(data: bytes, folder: Path) -> None:
    if not data:
        return
    name = NAMES[data[0] % len(NAMES)]
    raw = data[1:]
    if name == "header.safetensors":  # with the right length before it, which changes never keep
        header, _, rest = raw.partition(b"\0")
        raw = safetensors(header, rest)
    path = folder / name
    path.write_bytes(raw)
    try:
        read(name, folder)
    except ModelError as error:
        one_line(error)
    finally:
        path.unlink()


def seeds(folder: Path) -> int:
    """Files of every kind, good and bad, each with the byte that chooses its reader; how many."""
    kept: set[bytes] = set()

    def keep(name: str, raw: bytes) -> None:
        if name in NAMES and 0 < len(raw) < LARGEST:
            kept.add(bytes([NAMES.index(name)]) + raw)
            if name == "model.safetensors" and len(raw) > 8:
                size = struct.unpack("<Q", raw[:8])[0]
                header = raw[8 : 8 + min(size, LARGEST)] + b"\0" + raw[8 + min(size, LARGEST) :]
                kept.add(bytes([NAMES.index("header.safetensors")]) + header)

    for name in KINDS:
        keep("config.json", json.dumps(published(name)).encode())
    keep("model.safetensors", GOOD)
    keep("model.safetensors.index.json", json.dumps({"weight_map": {"a": SHARD}}).encode())
    hostile = runpy.run_path(str(Path(__file__).parents[1] / "models/files/test_hostile_files.py"))
    for build, *_ in hostile["BAD"].values():
        with tempfile.TemporaryDirectory() as place:
            try:
                path = build(Path(place))
            except OSError:
                continue
            if path.is_file() and path.stat().st_size < LARGEST:
                keep(path.name, path.read_bytes())
    for number, raw in enumerate(sorted(kept)):
        (folder / f"{number:04}").write_bytes(raw)
    return len(kept)


def fuzz(folder: Path, corpus: Path, seconds: int, seed: int) -> None:
    """Runs until the time is over or something fails, and ends this process."""
    options = {
        "max_total_time": seconds, "seed": seed + 1, "max_len": LARGEST, "timeout": 30,
        "rss_limit_mb": 4096, "print_final_stats": 1, "verbosity": 0,
    }  # fmt: skip
    flags = [f"-{name}={value}" for name, value in options.items()]
    atheris.Setup([sys.argv[0], *flags, str(corpus)], lambda data: attempt(data, folder))
    atheris.Fuzz()


def main() -> None:
    given = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    given.add_argument("--seconds", type=int, default=20)
    given.add_argument("--seed", type=int, default=0)
    given.add_argument("--again", type=Path, help="a crash-… file, to be read once")
    args = given.parse_args()
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as place:
        folder = Path(place)
        (folder / SHARD).write_bytes(GOOD)
        if args.again:
            attempt(args.again.read_bytes(), folder)
            return
        corpus = folder / "seeds"
        corpus.mkdir()
        known = seeds(corpus)
        child = os.fork()  # for the fuzzer ends its process, and the folder is to be cleared
        if not child:
            fuzz(folder, corpus, args.seconds, args.seed)
        _, status = os.waitpid(child, 0)
        new = len(list(corpus.iterdir())) - known  # the fuzzer keeps there what reaches new code
    code = os.waitstatus_to_exitcode(status)
    print(f"{new} new units beside {known} seeds, exit code {code}")
    if code == 0 and new == 0:
        sys.exit("error: the fuzzer found no new units: it sees no coverage of the readers")
    sys.exit(code)


if __name__ == "__main__":
    main()
