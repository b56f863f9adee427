"""Write `smallest_bases.json`: the smallest RoPE base by number of channels and text length.

An entry is the index in `BASES` of a base that suffices for longer texts than all smaller bases,
and the longest such text. This takes minutes. With --check, which takes seconds, only search one
base of each width again.
"""

import json
import sys
from pathlib import Path

import torch

from posenc.analysis.base_search import search
from posenc.analysis.frequencies import BASES, LONGEST, reach
from posenc.encodings.rotary.theta import frequencies

TABLE = Path(__file__).parent.parent / "src/posenc/analysis/smallest_bases.json"
WIDTHS = 20, 24, 32, 48, 64, 72, 80, 96, 112, 128, 144, 256, 512


def records(dim: int) -> list[tuple[int | None, int]]:
    """Return (index, length) of each base that suffices for longer texts than smaller bases."""
    found: list[tuple[int | None, int]] = []
    place, enough = 0, 0
    while enough < LONGEST:
        place = search(dim, enough + 1, BASES, place or 0)
        enough = LONGEST if place is None else reach(frequencies(dim, BASES[place]))
        found.append((place, enough))
    return found


def main() -> None:
    torch.set_num_threads(1)
    if "--check" in sys.argv:
        for dim, rows in json.loads(TABLE.read_text()).items():
            place, enough = rows[len(rows) // 2]
            if search(int(dim), enough, BASES) != place:
                sys.exit(f"{TABLE.name} is stale for {dim} channels: run tools/bases.py.")
        return
    rows = ",\n".join(
        f'"{dim}": {json.dumps(records(dim), separators=(",", ":"))}' for dim in WIDTHS
    )
    TABLE.write_text(f"{{\n{rows}\n}}\n")


if __name__ == "__main__":
    main()
