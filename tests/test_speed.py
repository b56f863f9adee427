"""docs/speed.md against the stores of benchmarks/results: every number of its tables and text."""

import json
import re
from itertools import product
from pathlib import Path

import pytest

pytestmark = pytest.mark.repository
ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs/speed.md").read_text("utf-8")
XEON = "2026-11-25-xeon-2-threads"
FILES = f"{XEON}/attention-rotation-adapter.json", f"{XEON}/serving.json"
EPYC = ("2026-11-24-epyc-2-threads/serving-adapter-rotation.json",)
LONG = "long{}: (1, 32, 4096, 128), {}, forward"
ROTATIONS = {
    "posenc, interleaved": "posenc interleaved: complex",
    "posenc, half": "posenc half: halves",
    "posenc, half, inside your `torch.compile`": "posenc half, compiled",
    "posenc, half, with the extra `fast` (Numba)": "posenc half: numba",
    "Meta's code of Llama, interleaved": "Meta (interleaved)",
    "transformers": "transformers",
    "vLLM's torch code": "vLLM native",
    "flash-attn's torch code": "flash-attn torch",
}
FIRE = {"FIRE": "FIRE, up to its L", "FIRE on texts longer than its threshold L": "FIRE, L = 512"}
GROUPED = "grouped: 1 query, {} keys, 32 heads on 8 of 128, {}"
LLAMA = "{}: Llama, 4 layers, 8 heads of 64, 2,048 tokens"
SERVED = {
    "one query": GROUPED.format("1,024", "float32"),
    "… 8,192 keys": GROUPED.format("8,192", "float32"),
    "… 65,536 keys": GROUPED.format("65,536", "float32"),
    "… 1,024 keys, bfloat16": GROUPED.format("1,024", "bfloat16"),
    "… 8,192 keys, bfloat16": GROUPED.format("8,192", "bfloat16"),
    "… 65,536 keys, bfloat16": GROUPED.format("65,536", "bfloat16"),
    "`Cache`": "cache: 64 tokens after 2,048, 16 heads on 16 of 64, float32",
    "prefill": "prefill: 16 tokens, 8 heads of 64, float32",
    "8 packed": "packed: 8 documents of 512 tokens, 8 heads of 64, float32",
    "… MB": "packed: 8 documents of 512 tokens, 8 heads of 64, float32",
    "in a Llama": LLAMA.format("prefill"),
    "… one token": LLAMA.format("one token more"),
}


def stored(names):
    """By case and name, the ratio, the megabytes and the median seconds of each row."""
    found = {}
    for name in names:
        store = json.loads((ROOT / "benchmarks/results" / name).read_text("utf-8"))
        for table in store["tables"]:
            for row in table["rows"]:
                found[table["case"], row["name"]] = row
    return found


@pytest.fixture(scope="module")
def rows():
    return stored(FILES)


def table(number):
    """The cells of a table of the page, by the first cell of each line."""
    lines = re.findall(r"(?:^\|.*\n)+", PAGE, re.M)[number].splitlines()[2:]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return {first: others for first, *others in cells}


def same(cell, value):
    """Test whether a cell is `value`, rounded to as many places as the cell shows."""
    places = len(cell.partition(".")[2])
    return abs(float(cell.replace(",", "")) - value) <= 0.5001 * 10**-places


def test_rotations_take_as_many_copies(rows):
    found = table(0)
    assert len(found) == 10
    for name, cells in found.items():
        of = name.removeprefix("while two other processes are busy: ")
        busy = "" if of == name else ", beside two busy processes"
        for dtype, cell in zip(("float32", "bfloat16"), cells, strict=True):
            row = rows[LONG.format(busy, dtype), ROTATIONS[of]]
            assert same(cell, row["ratio"]), name


def test_attention_takes_as_many_times_plain_attention(rows):
    """A blank has no row. DeBERTa's forward pass alone is divided by attention both ways."""
    found = table(1)
    assert len(found) == 12
    case = "{}: 2,048 tokens, 8 heads of 64, float32"
    for label, cells in found.items():
        name = label.partition(",")[0]
        ours, usual = f"posenc {FIRE.get(name, name)}", f"materialised {name}"
        asked = [
            *product(["forward"], [ours], ["ratio", "memory"]),
            *product(["training"], [ours], ["ratio", "memory"]),
            *product(["forward"], [usual], ["ratio", "memory"]),
            ("training", usual, "ratio"),
        ]
        for (what, row, of), cell in zip(asked, cells, strict=True):
            one = rows.get((case.format(what), row))
            assert (one is None) == (cell == ""), (label, what, row)
            assert one is None or same(cell, one[of]), (label, what, row)
    forward = {name: row["times"]["median"] for (at, name), row in rows.items()
               if at == case.format("forward")}  # fmt: skip
    training = {name: row["times"]["median"] for (at, name), row in rows.items()
                if at == case.format("training")}  # fmt: skip
    (deberta,) = (cells for label, cells in found.items() if label.startswith("DeBERTa, forward"))
    assert same(deberta[0], forward["posenc DeBERTa"] / forward["plain"])
    assert same(deberta[2], training["posenc DeBERTa"] / training["plain causal"])


def test_serving_takes_as_many_times_the_usual_calls(rows):
    found = table(2)
    assert len(found) == len(SERVED)
    for label, cells in found.items():
        # "… 8,192 keys" begins "… 8,192 keys, bfloat16" too
        case = SERVED[max((x for x in SERVED if label.startswith(x)), key=len)]
        of = "memory" if label == "… MB" else "ratio"
        for name, cell in zip(("NoPE", "RoPE", "ALiBi", "T5"), cells, strict=True):
            half = ", half" if "Llama" in case and name == "RoPE" else ""
            if cell:
                assert same(cell, rows[case, f"posenc {name}{half}"][of]), (label, name)


def test_one_query_pays_for_its_checks_as_measured(rows):
    case = "decode: 1 query, {} keys, 8 heads of 64, float32"
    text = " ".join(PAGE.partition("In a loop over single queries")[2].split())
    said = re.search(
        r"with NoPE .* (\S+) times .* on 2,048 keys and (\S+) times on 256,"
        r" with ALiBi (\S+) and (\S+) times\. With a `Decoding`"
        r" .* takes (\S+) to (\S+) times as long as torch",
        text,
    )
    assert said
    asked = product(("NoPE", "ALiBi"), ("2,048", "256"))
    ratios = [rows[case.format(keys), f"posenc {name}"]["ratio"] for name, keys in asked]
    held = [rows[case.format(keys), f"posenc {name}, row held"]["ratio"]
            for name, keys in product(("NoPE", "ALiBi", "T5"), ("2,048", "256"))]  # fmt: skip
    for cell, value in zip(said.groups(), [*ratios, min(held), max(held)], strict=True):
        assert same(cell, value)


def test_the_other_machine_took_as_long():
    rows = stored(EPYC)
    said = re.search(
        r"plain torch takes (\S+) times as long as a copy, and NoPE with grouped heads in"
        r" bfloat16 takes (\S+) times as long"
        r" as torch's call on 8,192 keys",
        " ".join(PAGE.split()),
    )
    assert said
    assert same(said[1], rows[LONG.format("", "float32"), "posenc half: halves"]["ratio"])
    assert same(said[2], rows[GROUPED.format("8,192", "bfloat16"), "posenc NoPE"]["ratio"])
