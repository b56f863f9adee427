"""Write the notebooks of the class: `python examples/class/lessons.py`.

Each lesson has a title, text, the names of its tasks in `checks.py`, and one stub for each task.
"""

import json
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).parent


class Lesson(NamedTuple):
    file: str
    title: str
    text: str
    stubs: dict[str, str]  # by task: the function to complete, whose name is that of the stub


LESSONS = [
    Lesson(
        "1_sinusoids",
        "Sinusoids",
        "A position becomes a pattern of waves, a slower one in each pair of channels:\n\n"
        "PE(p, 2j) = sin(p θⱼ),  PE(p, 2j+1) = cos(p θⱼ),  θⱼ = 10000^(−2j/d)",
        {
            "sinusoids": "def sinusoids(n, width):\n"
            '    """Return the rows of positions 0 to n − 1, (n, width)."""\n'
            "    raise NotImplementedError"
        },
    ),
    Lesson(
        "2_shift_matrix",
        "One matrix moves all positions",
        "For each pair of channels, one matrix M turns the row of any position p into that of"
        " p + k:\n\n"
        "M (sin pθ, cos pθ)ᵀ = (sin (p+k)θ, cos (p+k)θ)ᵀ",
        {
            "shift matrix": "def shift_matrix(k, theta):\n"
            '    """Return M, (2, 2). It depends on k and θ, not on p."""\n'
            "    raise NotImplementedError"
        },
    ),
    Lesson(
        "3_rope",
        "RoPE, twice",
        "RoPE turns each pair of channels by p θⱼ. Papers pair neighbours, 2j and 2j +"
        " 1, which are one"
        " complex number x₂ⱼ + i x₂ⱼ₊₁, multiplied by exp(i p θⱼ). Llama's code"
        " pairs halves, j and"
        " j + d/2. Both are in use, and mixing them up is the commonest mistake in ports.",
        {
            "RoPE, complex numbers": "def rope_complex(x, pos):\n"
            '    """Turn x (token, d) at positions (token,); pairs are neighbours."""\n'
            "    raise NotImplementedError",
            "RoPE, halves": "def rope_halves(x, pos):\n"
            '    """Turn x (token, d) at positions (token,); pairs are halves."""\n'
            "    raise NotImplementedError",
        },
    ),
    Lesson(
        "4_alibi",
        "ALiBi's slopes",
        "A score falls with distance, in each head at its own slope:\n\n"
        "bias(h, i, j) = −m_h |i − j|,  m_h = 2^(−8h/H),  h = 1 … H",
        {
            "ALiBi": "def alibi(heads, n):\n"
            '    """Return the bias of n queries and n keys, (head, query, key)."""\n'
            "    raise NotImplementedError"
        },
    ),
    Lesson(
        "5_t5_buckets",
        "T5's buckets",
        "T5 learns one number for each bucket of distances. With 32 buckets, and no"
        " keys ahead:\n\n"
        "bucket(δ) = δ for δ < 16;  min(31, 16 + ⌊16 ln(δ/16) / ln(128/16)⌋) otherwise",
        {
            "T5 buckets": "def t5_bucket(offset):\n"
            '    """Return the bucket of each offset ≥ 0, whole numbers (any shape)."""\n'
            "    raise NotImplementedError"
        },
    ),
    Lesson(
        "6_why_10000",
        "Why 10,000?",
        "A pair that does not complete a turn within the trained length L meets new"
        " angles in longer"
        " texts. Its turn takes 2π/θⱼ tokens, with θⱼ = base^(−2j/d). Count these"
        " pairs for base 100,"
        " 10,000 and 10⁶: a larger base leaves more pairs unfinished, a smaller one"
        " repeats sooner.",
        {
            "unfinished pairs": "def unfinished_pairs(base, dim, length):\n"
            '    """Return how many of the d/2 pairs do not complete a turn in'
            ' `length` tokens."""\n'
            "    raise NotImplementedError"
        },
    ),
    Lesson(
        "7_ntk_and_yarn",
        "NTK and YaRN",
        "To read texts s times longer, NTK raises the base so that the slowest pair"
        " slows by exactly s:"
        " θⱼ · s^(−2j/(d−2)).\n\nYaRN looks at the turns rⱼ = L θⱼ / 2π of each pair in"
        " training: below 1"
        " it divides θⱼ by s, above 32 it keeps θⱼ, between them it blends:\n\n"
        "γⱼ = (rⱼ − 1) / 31, cut to [0, 1];  θ′ⱼ = γⱼ θⱼ + (1 − γⱼ) θⱼ / s",
        {
            "NTK": "def ntk(theta, factor):\n"
            '    """Return the stretched θ (pair,) of θ (pair,)."""\n'
            "    raise NotImplementedError",
            "YaRN by parts": "def yarn(theta, factor, trained):\n"
            '    """Return the stretched θ (pair,) of θ (pair,) and L = trained."""\n'
            "    raise NotImplementedError",
        },
    ),
    Lesson(
        "8_your_own",
        "Your own encoding",
        "Write an encoding that adds −ln(1 + |pᵢ − pⱼ|) to every score. `q_at` is"
        " (batch, head, query),"
        " `k_at` is (batch, head, key); return (batch, head, query, key). The check"
        " measures what it"
        " promises.",
        {
            "own encoding": "class LogBias(Encoding):\n"
            "    def on_scores(self, q, k, q_at, k_at, scale):\n"
            "        raise NotImplementedError"
        },
    ),
]


def notebook(lesson: Lesson) -> str:
    """Return the notebook of a lesson as JSON."""
    cells = [("markdown", f"# {lesson.title}\n\n{lesson.text}")]
    tasks = ", ".join(["check", "draw"] if "own encoding" not in lesson.stubs else ["check"])
    cells.append(
        ("code", f"import torch\nfrom checks import {tasks}\n\nfrom posenc import Encoding")
    )
    for task, stub in lesson.stubs.items():
        name = stub.split()[1].partition("(")[0]
        cells.append(("code", stub))
        if task != "own encoding":
            cells.append(("code", f'draw("{task}", {name});'))
        cells.append(("code", f'check("{task}", {name});'))
    content = {
        "cells": [
            {"cell_type": kind, "id": f"cell-{n}", "metadata": {}, "source": source}
            | ({"execution_count": None, "outputs": []} if kind == "code" else {})
            for n, (kind, source) in enumerate(cells)
        ],
        "metadata": {
            "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
            "language_info": {"name": "python"},
        },
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    return json.dumps(content, ensure_ascii=False, indent=1) + "\n"


if __name__ == "__main__":
    for lesson in LESSONS:
        (HERE / f"{lesson.file}.ipynb").write_text(notebook(lesson), "utf-8")
