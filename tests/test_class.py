"""The class: each exercise solved rightly passes, and three common mistakes are named."""

import importlib.util
import json
import sys
from math import inf, log, pi
from pathlib import Path

import pytest
import torch

from posenc import Encoding

FOLDER = Path(__file__).parent.parent / "examples/class"


def module(name):
    spec = importlib.util.spec_from_file_location(f"class_{name}", FOLDER / f"{name}.py")
    made = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = made
    spec.loader.exec_module(made)
    return made


checks, lessons, answers = module("checks"), module("lessons"), module("answers")
TASKS = {
    task: stub.split()[1].partition("(")[0]
    for lesson in lessons.LESSONS
    for task, stub in lesson.stubs.items()
}


@pytest.mark.parametrize("task", TASKS)
def test_the_answer_passes_and_the_stub_does_not(task):
    assert checks.check(task, getattr(answers, TASKS[task])).startswith("✓ Right")
    space = {"Encoding": Encoding}
    stub = next(lesson.stubs[task] for lesson in lessons.LESSONS if task in lesson.stubs)
    exec(stub, space)
    assert checks.check(task, space[TASKS[task]]) == "✕ Nothing is written yet."


def theta(x, power=-2.0):
    return 10_000.0 ** (power * torch.arange(x.shape[-1] // 2) / x.shape[-1])


def halves(x, angles):
    a, b = x.chunk(2, -1)
    return torch.cat([a * angles.cos() - b * angles.sin(), a * angles.sin() + b * angles.cos()], -1)


def neighbours(x, angles):
    pairs = torch.view_as_complex(x.unflatten(-1, (-1, 2)).contiguous()) * torch.exp(1j * angles)
    return torch.view_as_real(pairs).flatten(-2)


def rows(n, width, start=0, power=-2.0):
    return torch.arange(start, n + start)[:, None] * theta(torch.zeros(width), power)


def alibi(slopes, n, absolute=True):
    offset = torch.arange(n)[:, None] - torch.arange(n)
    return -slopes[:, None, None] * (offset.abs() if absolute else offset)


def slopes(heads, first=1):
    return 2.0 ** (-8 * torch.arange(first, first + heads) / heads)


def log_bucket(offset):
    return 16 * torch.log(offset.clamp(min=1) / 16) / log(8)


class Grows(Encoding):
    def on_scores(self, q, k, q_at, k_at, scale):
        return torch.log1p((q_at[..., None] - k_at[..., None, :]).abs().float()).expand(
            1, q.shape[1], -1, -1
        )


class Counts(Encoding):
    def on_scores(self, q, k, q_at, k_at, scale):
        n = torch.arange(q.shape[-2])
        return -torch.log1p((n[:, None] - n).abs().float()).expand(1, q.shape[1], -1, -1)


class NoOne(Encoding):
    def on_scores(self, q, k, q_at, k_at, scale):
        return -torch.log((q_at[..., None] - k_at[..., None, :]).abs().float()).expand(
            1, q.shape[1], -1, -1
        )


# Independent of checks.py: a task, a wrong attempt, and a word that the check must print
WRONG = [
    ("sinusoids", lambda n, w: torch.cat([rows(n, w).sin(), rows(n, w).cos()], -1), "alternate"),
    (
        "sinusoids",
        lambda n, w: torch.stack([rows(n, w).cos(), rows(n, w).sin()], -1).flatten(1),
        "changed places",
    ),
    (
        "sinusoids",
        lambda n, w: torch.stack(
            [rows(n, w, power=-1).sin(), rows(n, w, power=-1).cos()], -1
        ).flatten(1),
        "exponent",
    ),
    (
        "sinusoids",
        lambda n, w: torch.stack([rows(n, w, 1).sin(), rows(n, w, 1).cos()], -1).flatten(1),
        "begin at 0",
    ),
    ("shift matrix", lambda k, t: answers.shift_matrix(k, t).T, "−k"),
    ("shift matrix", lambda k, t: answers.shift_matrix(1, t), "by one position"),
    ("shift matrix", lambda k, t: answers.shift_matrix(k, t * pi / 180), "degrees"),
    (
        "RoPE, complex numbers",
        lambda x, p: halves(x, p[:, None] * theta(x)),
        "Your pairs are halves",
    ),
    ("RoPE, complex numbers", lambda x, p: neighbours(x, -p[:, None] * theta(x)), "backwards"),
    ("RoPE, complex numbers", lambda x, p: neighbours(x, p[:, None] * theta(x, -1)), "exponent"),
    (
        "RoPE, halves",
        lambda x, p: neighbours(x, p[:, None] * theta(x)),
        "Your pairs are neighbours",
    ),
    ("RoPE, halves", lambda x, p: halves(x, -p[:, None] * theta(x)), "backwards"),
    (
        "RoPE, halves",
        lambda x, p: (
            x * (a := (p[:, None] * theta(x)).repeat(1, 2)).cos()
            + torch.cat([x[:, 4:], x[:, :4]], -1) * a.sin()
        ),
        "minus is missing",
    ),
    ("ALiBi", lambda h, n: -alibi(slopes(h), n), "subtracted"),
    ("ALiBi", lambda h, n: alibi(slopes(h, 0), n), "first slope is 1"),
    ("ALiBi", lambda h, n: alibi(slopes(h), n, absolute=False), "sign"),
    ("T5 buckets", lambda x: x.clamp(max=31), "logarithm"),
    (
        "T5 buckets",
        lambda x: torch.where(x < 16, x, (16 + log_bucket(x).round()).clamp(max=31)),
        "floor",
    ),
    ("T5 buckets", lambda x: torch.where(x < 16, x, 16 + log_bucket(x).floor()), "stop at 31"),
    (
        "unfinished pairs",
        lambda b, d, n: sum(n * b ** (-2 * j / d) < 1 for j in range(d // 2)),
        "2π",
    ),
    ("unfinished pairs", lambda b, d, n: d // 2 - answers.unfinished_pairs(b, d, n), "do finish"),
    (
        "unfinished pairs",
        lambda b, d, n: sum(n * b ** (-j / d) < 2 * pi for j in range(d // 2)),
        "exponent",
    ),
    ("NTK", lambda t, s: t / s, "PI"),
    ("NTK", lambda t, s: t * s ** (-2 * torch.arange(64) / 128), "s^(d/(d−2))"),
    ("NTK", lambda t, s: t * s ** (-(63 - torch.arange(64)) / 63), "wrong way"),
    ("YaRN by parts", lambda t, s, n: t / s, "PI"),
    ("YaRN by parts", lambda t, s, n: torch.where(n * t >= 2 * pi, t, t / s), "no ramp"),
    ("YaRN by parts", lambda t, s, n: t + t / s - answers.yarn(t, s, n), "wrong way"),
    ("own encoding", Grows, "Subtract"),
    ("own encoding", Counts, "counts tokens itself"),
    ("own encoding", NoOne, "1 + distance"),
]


@pytest.mark.parametrize(
    ("task", "attempt", "named"), WRONG, ids=[f"{task}: {named}" for task, _, named in WRONG]
)
def test_common_mistakes_are_named(task, attempt, named):
    said = checks.check(task, attempt)
    assert said.startswith("✕ ")
    assert named in said


def test_each_exercise_has_three_mistakes_that_are_named():
    counts = {task: sum(one == task for one, *_ in WRONG) for task in TASKS}
    assert min(counts.values()) >= 3


@pytest.mark.parametrize(
    ("attempt", "named"),
    [
        (lambda n, w: None, "returns None"),
        (lambda n, w: torch.zeros(n), "shape (40,)"),
        (lambda n, w: 1 / 0, "ZeroDivisionError"),
        (lambda n, w: torch.full((n, w), inf), "At index"),
        (lambda n, w: 2 * answers.sinusoids(n, w), "At index"),
    ],
    ids=["nothing", "shape", "exception", "infinity", "twice"],
)
def test_any_other_mistake_is_located(attempt, named):
    said = checks.check("sinusoids", attempt)
    assert said.startswith("✕ ")
    assert named in said


@pytest.mark.parametrize("lesson", lessons.LESSONS, ids=lambda one: one.file)
def test_notebooks_are_as_written_and_run(lesson, monkeypatch):
    """With the answer in place of the stub, every cell runs and the check passes."""
    pytest.importorskip("matplotlib").use("agg")
    path = FOLDER / f"{lesson.file}.ipynb"
    assert path.read_text("utf-8") == lessons.notebook(lesson)
    monkeypatch.syspath_prepend(FOLDER)
    space = {}
    for cell in json.loads(path.read_text("utf-8"))["cells"]:
        if cell["cell_type"] == "code":
            exec(cell["source"], space)
            space |= {name: vars(answers)[name] for name in {*TASKS.values()} & space.keys()}


def test_the_figure_shows_the_attempt_beside_the_answer():
    pytest.importorskip("matplotlib").use("agg")
    figure = checks.draw("ALiBi", answers.alibi)
    yours, right = (axis.images[0].get_array() for axis in figure.axes)
    assert (yours == right).all()
    figure = checks.draw("ALiBi", lambda heads, n: -answers.alibi(heads, n))
    yours, right = (axis.images[0].get_array() for axis in figure.axes)
    assert (yours == -right).all()
