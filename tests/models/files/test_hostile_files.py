"""Test that malicious files are rejected with a reason, quickly, within 200 MB and without torch.

Numbers 34 to 50 refer to our list of attacks.
"""

import json
import os
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from posenc.models.files.errors import ModelError
from posenc.models.files.folder import find_files, read_json
from posenc.models.weights import open_weights

pytestmark = pytest.mark.usefixtures("unchecked")  # checking types would take most of the time


def written(path, raw):
    path.write_bytes(raw.encode() if isinstance(raw, str) else raw)
    return path


def config(raw):
    return lambda folder: written(folder / "config.json", raw)


def sparse(name, size, raw=b""):
    def build(folder):
        path = written(folder / name, raw)
        os.truncate(path, size)
        return path

    return build


def safetensors(header, data=bytes(8), length=None):
    """Write a file with this header, as JSON or raw, which may state a false length.

    A large header comes from a function, so that collecting tests stays fast.
    """

    def build(folder):
        given = header() if callable(header) else header
        raw = given if isinstance(given, bytes) else json.dumps(given).encode()
        size = struct.pack("<Q", len(raw) if length is None else length)
        return written(folder / "model.safetensors", size + raw + data)

    return build


def a(dtype="F32", shape=(2,), data_offsets=(0, 8), **more):
    return {"dtype": dtype, "shape": shape, "data_offsets": data_offsets, **more}


def index(weight_map, make=lambda folder: None):
    """Write an index, and one shard with the tensor `a`."""

    def build(folder):
        safetensors({"a": a()})(folder).rename(folder / "one.safetensors")
        make(folder)
        body = json.dumps({"weight_map": weight_map})
        return written(folder / "model.safetensors.index.json", body)

    return build


def shard(make):
    return index({"a": "shard.safetensors"}, lambda folder: make(folder / "shard.safetensors"))


def linked(to):
    return lambda path: path.symlink_to(to)


def outside(path):
    path.symlink_to(safetensors({"a": a()})(path.parent.parent))


def text(raw):
    return struct.pack("<Q", len(raw)) + raw


def gguf(*parts, tensors=0, keys=0, version=3, magic=b"GGUF"):
    raw = magic + struct.pack("<IQQ", version, tensors, keys) + b"".join(parts)
    return lambda folder: written(folder / "model.gguf", raw)


def key(name, kind, value):
    return text(name) + struct.pack("<I", kind) + value


def line(name=b"t", sizes=(2,), kind=0, offset=0):
    numbers = struct.pack(f"<I{len(sizes)}QIQ", len(sizes), *sizes, kind, offset)
    return text(name) + numbers


def many(count, of):
    return ",".join(of(n) for n in range(count))


BAD = {
    # 34-38: JSON
    "34 empty": (config(""), "config.json: is empty"),
    "34 spaces": (config(" \n"), "config.json: is empty"),
    "34 byte order mark": (config(b"\xef\xbb\xbf{}"), "byte order mark"),
    "34 UTF-16": (config("{}".encode("utf-16")), "is UTF-16"),
    "34 UTF-16 without a mark": (config("{}".encode("utf-16-le")), "is UTF-16"),
    "34 latin-1": (config(b'{"a": "\xe9"}'), "is not UTF-8 at byte 7"),
    "34 a list": (config("[1, 2]"), r"must be an object, got \[1, 2\]"),
    "34 null": (config("null"), "must be an object, got None"),
    "34 text behind": (config("{} {}"), "is not JSON: Extra data, line 1, column 4"),
    "34 cut off": (config('{"a": 1'), "is not JSON"),
    "34 two MiB": (config(b"{" + b" " * 2**21 + b"}"), "too large, allowed: up to 1048576"),
    "34 not there": (lambda folder: folder / "config.json", "cannot be read: No such file"),
    "35 100,000 levels": (config("[" * 10**5), "nested too deeply, allowed: up to 64"),
    "35 100,000 objects": (config('{"a":' * 10**5), "nested too deeply"),
    "35 65 levels": (config('{"a":' * 65 + "1" + "}" * 65), "nested too deeply"),
    "36 5000 digits": (config('{"a": ' + "9" * 5000 + "}"), "an integer of 5000 digits"),
    "36 above 2^53": (
        config('{"a": -9007199254740993}'),
        r"an integer of 16 digits, allowed: up to 2\^53",
    ),
    "37 a key twice": (config('{"b": {"a": 1, "a": 2}}'), "config.json:a: occurs twice"),
    "37 as an escape": (config('{"a": 1, "\\u0061": 2}'), "config.json:a: occurs twice"),
    "38 NaN": (config('{"a": NaN}'), "contains NaN, which is not JSON"),
    "38 infinity": (config('{"a": -Infinity}'), "contains -Infinity"),
    "38 1e400": (config('{"a": 1e400}'), "contains 1e400, which is too large"),
    "38 half a pair": (config('{"a": "\\ud800"}'), "half of a surrogate pair"),
    "38 half a pair, a key": (config('{"\\udfff": 1}'), "half of a surrogate pair"),
    # 39-44: safetensors
    "39 no bytes": (lambda f: written(f / "model.safetensors", b""), "has 0 bytes, too few"),
    "39 seven bytes": (lambda f: written(f / "model.safetensors", bytes(7)), "has 7 bytes"),
    "39 eight bytes": (lambda f: written(f / "model.safetensors", bytes(8)), "is empty"),
    "40 a header of 2^63": (safetensors({}, length=2**63), "header of 9223372036854775808 b"),
    "40 longer than the file": (safetensors({}, length=20), "header of 20 bytes, allowed"),
    "40 of 100 MB": (
        sparse("model.safetensors", 2 * 10**8, struct.pack("<Q", 10**8)),
        "states a header of 100000000 bytes, allowed: up to 16777216",
    ),
    "40 a pickle": (lambda f: written(f / "model.safetensors", b"\x80\x02}q\0." * 9), "header"),
    "40 a Git LFS pointer": (
        lambda f: written(f / "model.safetensors", "version https://git-lfs.github.com/spec/v1\n"),
        "is a Git LFS pointer",
    ),
    "41 not JSON": (safetensors(b"{oh}"), "is not JSON"),
    "41 not UTF-8": (safetensors(b'{"\xff": 1}'), "is not UTF-8"),
    "41 an array": (safetensors([a()]), "must be an object"),
    "41 a tensor twice": (
        safetensors(b'{"a":%s,"a":%s}' % ((json.dumps(a()).encode(),) * 2)),
        "model.safetensors:a: occurs twice",
    ),
    "41 tensor is a number": (safetensors({"a": 1}), "a: must have dtype, shape and data_off"),
    "41 one key more": (safetensors({"a": a(code="x")}), "no other keys"),
    "42 reversed": (
        safetensors({"a": a(data_offsets=(8, 0))}),
        "a: must have data_offsets that fit",
    ),
    "42 negative": (safetensors({"a": a(data_offsets=(-8, 0))}), "must have data_offsets that fit"),
    "42 overlapping": (
        safetensors({"a": a(), "b": a(data_offsets=(4, 12))}, bytes(12)),
        "b: overlaps the tensor before it, got 4, allowed: 8",
    ),
    "42 a hole": (
        safetensors({"a": a(), "b": a(data_offsets=(9, 17))}, bytes(17)),
        "b: leaves a gap before it, got 9, allowed: 8",
    ),
    "42 a hole at the start": (safetensors({"a": a(data_offsets=(1, 9))}, bytes(9)), "gap"),
    "42 past the end": (safetensors({"a": a()}, bytes(7)), "its header describes"),
    "42 bytes behind": (safetensors({"a": a()}, bytes(9)), "its header describes"),
    "42 too short": (safetensors({"a": a(data_offsets=(0, 7))}), r"allowed: \[2\] of F32: 8 b"),
    "42 words": (safetensors({"a": a(data_offsets=("0", "8"))}), "needs two data_offsets"),
    "42 three": (safetensors({"a": a(data_offsets=(0, 4, 8))}), "needs two data_offsets"),
    "43 negative": (safetensors({"a": a(shape=(-2,))}), "a: has an impossible shape"),
    "43 twice negative": (safetensors({"a": a(shape=(-1, -2))}), "has an impossible shape"),
    "43 overflowing": (safetensors({"a": a(shape=(2**40, 2**40))}), "has an impossible shape"),
    "43 2^63 times 0": (
        safetensors({"a": a(shape=(2**63, 0), data_offsets=(0, 0))}, b""),
        "an integer of 19 digits",
    ),
    "43 2^50 2^50 0": (
        safetensors({"a": a(shape=(2**50, 2**50, 0), data_offsets=(0, 0))}, b""),
        "has an impossible shape",
    ),
    "43 1e30": (safetensors({"a": a(shape=(1e30,))}), "has an impossible shape"),
    "43 true": (safetensors({"a": a("F64", (True,))}), r"an impossible shape, got \[True\]"),
    "43 a word": (safetensors({"a": a(shape="2")}), "an impossible shape, got '2'"),
    "43 65 axes": (safetensors({"a": a("F64", [1] * 65)}), "an impossible shape, got a list of 65"),
    "44 dtype": (safetensors({"a": a("F33")}), "has an unknown dtype, got 'F33', allowed: BOOL"),
    "44 no dtype": (safetensors({"a": a(None)}), "has an unknown dtype"),
    "44 metadata": (safetensors({"__metadata__": {"a": 1}, "a": a()}), "must contain strings only"),
    "44 metadata list": (safetensors({"__metadata__": [], "a": a()}), "__metadata__: must contain"),
    "44 names without end": (safetensors({"a" * 513: a()}), "with 513 characters, allowed: 1 to"),
    "44 no name": (safetensors({"": a()}), "with 0 characters"),
    "44 100,001 tensors": (
        safetensors(lambda: {f"{n}": {} for n in range(100_001)}),
        "contains 100001 tensors, allowed: up to 100000",
    ),
    "44 16 MiB of lists": (safetensors(b'{"a":[' + b"[]," * 10**6 + b"1,1]}"), "too many values"),
    "44 just below": (safetensors(b'{"a":[' + b"[]," * 699_999 + b"1]}"), "a: must have dtype"),
    "44 450,001 keys": (
        safetensors(lambda: ("{" + many(450_001, lambda n: f'"{n}":0') + "}").encode()),
        "contains too many values, allowed: up to 450000 keys",
    ),
    "44 450,000 objects": (
        safetensors(lambda: ("{" + many(225_000, lambda n: f'"{n}":{{"":0}}') + "}").encode()),
        "contains 225000 tensors",
    ),
    # 45-47: shards
    "45 upwards": (index({"a": "../one.safetensors"}), "a: names a file outside the folder"),
    "45 upwards, Windows": (index({"a": "..\\one.safetensors"}), "outside the folder"),
    "45 upwards within": (index({"a": "x/../../one.safetensors"}), "outside the folder"),
    "45 absolute": (index({"a": "/etc/one.safetensors"}), "outside the folder"),
    "45 a drive": (index({"a": "C:\\one.safetensors"}), "outside the folder"),
    "45 a drive's folder": (index({"a": "C:one.safetensors"}), "outside the folder"),
    "45 null byte": (index({"a": "one\0.safetensors"}), "outside the folder"),
    "45 10 kB": (index({"a": "x" * 10**4 + ".safetensors"}), "cannot be read: File name too long"),
    "45 another kind": (
        index({"a": "/etc/passwd"}),
        r"in the format of the index, got '/etc/passwd', all",
    ),
    "45 a number": (index({"a": 1}), "weight_map: must map each tensor to a file"),
    "45 a list": (index(["a"]), "weight_map: must map each tensor to a file"),
    "46 a link to outside": (shard(outside), "a: links to a file outside the folder"),
    "46 /dev/zero": (shard(linked("/dev/zero")), "links to a file outside the folder"),
    "46 a pipe": (shard(os.mkfifo), "shard.safetensors: must be a regular file"),
    "46 a folder": (shard(os.mkdir), "shard.safetensors: must be a regular file"),
    "46 in a circle": (shard(linked("shard.safetensors")), "cannot be read"),
    "46 config a pipe": (lambda f: os.mkfifo(f / "config.json") or f, "must be a regular file"),
    "46 config /dev/zero": (lambda f: (f / "config.json").symlink_to("/dev/zero") or f, "outside"),
    "46 /dev/zero itself": (lambda f: Path("/dev/zero"), "zero: must be a regular file"),
    "47 no such shard": (index({"a": "two.safetensors"}), "two.safetensors: cannot be read: No s"),
    "47 in another shard": (
        index({"a": "one.safetensors", "b": "one.safetensors"}),
        "index.json:b: is not in 'one.safetensors', the file that the index names",
    ),
    # 48, 50
    "48 pickles only": (
        lambda f: written(f / "pytorch_model.bin", b"PK") and f,
        "pytorch_model.bin: pickle is never loaded, .*; convert it to safetensors",
    ),
    "48 a pickle": (lambda f: written(f / "a.pt", b"PK"), "a.pt: pickle is never loaded"),
    "48 nothing": (lambda f: f, "model: contains no config.json and no weights"),
    "48 something else": (lambda f: written(f / "a.h5", b"HDF"), "has an unknown format"),
    "50 escapes": (safetensors({"\x1b[31m": a("X")}), r"model.safetensors:\\x1b\[31m: has an un"),
    "50 right to left": (safetensors({"\u202ea": a("X")}), r":\\u202ea: has an unknown dtype"),
    "50 10 kB": (safetensors({"a" * 10**4: a()}), "a…: names a tensor with 10000 characters"),
    # GGUF
    "gguf empty": (lambda f: written(f / "model.gguf", b""), "model.gguf: ends within its header"),
    "gguf other magic": (gguf(magic=b"GGML"), "is not GGUF, got .*GGML"),
    "gguf version 1": (gguf(version=1), "version 1., allowed: .* version 2 or 3"),
    "gguf big-endian": (gguf(version=3 << 24), "allowed: .*little-endian"),
    "gguf 2^63 tensors": (gguf(tensors=2**63), "states 9223372036854775808 tensors"),
    "gguf 2^63 keys": (gguf(keys=2**63), "and 9223372036854775808 keys"),
    "gguf 10,000 keys": (gguf(keys=10**4), "ends within its header"),
    "gguf endless text": (
        gguf(struct.pack("<Q", 2**62), keys=1),
        "contains a string of 4611686018427387904 b",
    ),
    "gguf endless array": (
        gguf(key(b"a", 9, struct.pack("<IQ", 0, 2**40)), bytes(100), keys=1),
        "has a header that is too long, allowed: 67108864 bytes",
    ),
    "gguf endless strings": (
        gguf(key(b"a", 9, struct.pack("<IQ", 8, 2**40)), bytes(100), keys=1),
        "a: contains 1099511627776 strings, allowed: up to 1000000",
    ),
    "gguf 1,000,000 strings": (
        gguf(key(b"a", 9, struct.pack("<IQ", 8, 10**6)), bytes(8 * 10**6 - 1), keys=1),
        "ends within its header",
    ),
    "gguf 1,000,000 strings of 20": (
        gguf(key(b"a", 9, struct.pack("<IQ", 8, 10**6)), text(b"x" * 20) * 10**6, keys=2),
        "ends within its header",
    ),
    "gguf long strings": (
        gguf(key(b"a", 9, struct.pack("<IQ", 8, 10**6)), text(b"x" * 2**20) * 70, keys=1),
        "has a header that is too long",
    ),
    "gguf arrays of arrays": (
        gguf(key(b"a", 9, struct.pack("<IQ", 9, 1) * 5000), keys=1),
        "a: must be an array of a known value type, got 9",
    ),
    "gguf unknown type": (gguf(key(b"a", 13, b""), keys=1), "a: has an unknown type, got 13"),
    "gguf a key twice": (gguf(key(b"a", 0, b"1") * 2, keys=2), "a: occurs twice"),
    "gguf not UTF-8": (gguf(key(b"\xff", 0, b"1"), keys=1), "a name that is not UTF-8"),
    "gguf alignment 0": (
        gguf(key(b"general.alignment", 4, bytes(4)), keys=1),
        "general.alignment: must be a power of two, got 0",
    ),
    "gguf alignment 24": (
        gguf(key(b"general.alignment", 4, b"\x18\0\0\0"), keys=1),
        "must be a power of two, got 24",
    ),
    "gguf alignment a word": (gguf(key(b"general.alignment", 8, text(b"x")), keys=1), "got 'x'"),
    "gguf axes": (gguf(text(b"t"), b"\xff" * 4, tensors=1), "t: has 4294967295 axes"),
    "gguf overflowing": (gguf(line(sizes=(2**40, 2**40)), tensors=1), "t: has an impossible sh"),
    "gguf unknown dtype": (gguf(line(kind=4), tensors=1), "t: has an unknown dtype, got '4'"),
    "gguf half a block": (
        gguf(line(sizes=(33,), kind=2), tensors=1),
        "rows of 33 numbers, allowed: multiples of 32",
    ),
    "gguf a tensor twice": (gguf(line(), line(offset=32), tensors=2), "t: occurs twice"),
    "gguf overlapping": (gguf(line(), line(b"u"), tensors=2), "u: must have an aligned offset"),
    "gguf not aligned": (gguf(line(offset=8), tensors=1), "t: must have an aligned offset"),
}


def read(path):
    if path.suffix == ".json" and not path.name.endswith(".index.json"):
        return read_json(path)
    return open_weights(find_files(path))


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "model").mkdir()
    return tmp_path / "model"


@pytest.mark.parametrize("name", BAD)
def test_it_is_refused_and_the_reason_given(name, folder):
    build, message = BAD[name]
    with pytest.raises(ModelError, match=message) as refusal:
        read(build(folder))
    assert str(refusal.value).isprintable()
    assert len(str(refusal.value)) < 600


MEASURE = """
import json, resource, sys
from pathlib import Path
from posenc.models.files.errors import ModelError
from posenc.models.files.folder import find_files, read_json
from posenc.models.weights import open_weights

size = Path("/proc/self/status").read_text().split("VmSize:")[1].split()[0]
resource.setrlimit(resource.RLIMIT_AS, (int(size) * 1024 + 200 * 2**20,) * 2)
calls = 0

def count(frame, event, function):
    global calls
    calls += event in ("call", "c_call")

for name, path in json.load(sys.stdin).items():
    path, answer, calls = Path(path), "accepted", 0
    sys.setprofile(count)
    try:
        config = path.suffix == ".json" and not path.name.endswith(".index.json")
        read_json(path) if config else open_weights(find_files(path))
    except ModelError:
        answer = "refused"
    except BaseException as error:
        answer = repr(error)
    sys.setprofile(None)
    print(json.dumps([name, answer, calls]))
assert "torch" not in sys.modules and "numpy" not in sys.modules
"""


@pytest.mark.slow
def test_all_are_refused_after_few_calls_and_within_200_mb(tmp_path):
    """Allow three calls for each string of a file with a million strings, which take a second.

    Numbers of calls do not depend on the machine.
    """
    paths = {}
    for number, (name, (build, _)) in enumerate(BAD.items()):
        folder = tmp_path / str(number) / "model"
        folder.mkdir(parents=True)
        paths[name] = str(build(folder))
    done = subprocess.run(
        [sys.executable, "-c", MEASURE], input=json.dumps(paths), capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    answers = [json.loads(answer) for answer in done.stdout.splitlines()]
    assert [name for name, *_ in answers] == list(BAD)
    assert [(name, answer) for name, answer, _ in answers if answer != "refused"] == []
    assert [(name, calls) for name, _, calls in answers if calls > 4_000_000] == []
