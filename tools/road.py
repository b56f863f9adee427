"""Count the functions and files of posenc that one call of `attend` enters.

python tools/road.py            a table of four encodings
python tools/road.py alibi t5   the same of these, and the functions of each in order

Counted is the third call, of 64 tokens under a causal mask, and of one query on 64 keys without
gradients. Positions and masks are made before. The numbers depend on Python: 3.11 enters a function
for each comprehension of a list, 3.12 for none.
"""

import sys
from pathlib import Path
from types import FrameType
from typing import Any

import torch

import posenc
from posenc import attend, masks

ENCODINGS = ("nope", "alibi", "t5", "rope")
ROOT = Path(posenc.__file__).parent
TOKENS, HEADS, DIM = 64, 4, 32


def road(name: str, queries: int = TOKENS) -> list[str]:
    """Return the functions that a third, warm call of `attend` enters, as "file:function"."""
    encoding, pos = posenc.create(name, DIM, HEADS), torch.arange(TOKENS)
    k = torch.randn(1, HEADS, TOKENS, DIM)
    q, q_pos = k[:, :, -queries:].clone(), pos[-queries:]
    at, k_at, mask = encoding.prepare(q_pos), None, masks.causal()
    if queries < TOKENS:
        k_at, mask = encoding.prepare(pos), masks.causal(q_pos, pos)
    entered: list[str] = []

    def note(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(str(ROOT)):
            file = Path(code.co_filename).relative_to(ROOT).as_posix()
            entered.append(f"{file}:{code.co_qualname}")

    with torch.set_grad_enabled(queries > 1):
        for _ in range(2):
            attend(q, k, k, encoding, at, k_at, mask)
        sys.setprofile(note)
        try:
            attend(q, k, k, encoding, at, k_at, mask)
        finally:
            sys.setprofile(None)
    return entered


def counts(entered: list[str]) -> tuple[int, int]:
    """Return the number of function calls, and of files with the called functions."""
    return len(entered), len({line.split(":")[0] for line in entered})


def table(names: tuple[str, ...]) -> str:
    lines = [f"Python {sys.version.split()[0]}, torch {torch.__version__}"]
    for name in names:
        whole, one = (counts(road(name, queries)) for queries in (TOKENS, 1))
        lines.append(
            f"{name:12} {whole[0]:4} functions in {whole[1]:2} files;"
            f" one query {one[0]:4} in {one[1]:2}"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    names = tuple(sys.argv[1:])
    print(table(names or ENCODINGS))
    for name in names:
        for queries in (TOKENS, 1):
            print(f"\n{name}, {queries} of {TOKENS} tokens", *road(name, queries), sep="\n    ")
