"""The numbers of the test vectors by other routes: mpmath with 50 digits, and plain loops."""

from collections import Counter
from functools import cache

import pytest
import torch
from mpmath import mp, mpf

from posenc.catalog import CATALOG
from posenc.lab.vectors import cases
from posenc.positions.diffusion import DIFFUSION
from posenc.positions.rules import RULES


@cache
def all_cases():
    return {case.name: case for case in cases.cases()}


def test_there_are_two_thousand_cases_with_names_of_their_own():
    names = Counter(case.name for case in cases.cases())
    assert len(names) >= 2000
    assert max(names.values()) == 1


def test_every_encoding_and_every_rule_has_cases():
    made = all_cases().values()
    encodings = {case.settings["encoding"] for case in made if case.kind == "encoding"}
    assert encodings == {card.name for card in CATALOG}
    rules = {case.settings["rule"] for case in made if case.kind == "ids"}
    assert rules == {*RULES, *DIFFUSION}
    methods = {case.settings.get("method") for case in made if case.kind == "angles"}
    assert {"default", "linear", "ntk", "dynamic", "yarn", "llama3", "riflex"} <= methods


def test_no_case_has_a_number_that_is_not_finite():
    for case in all_cases().values():
        for x in (*case.inputs.values(), *case.outputs.values()):
            assert x.isfinite().all(), case.name


def test_theta_is_rounded_to_float64_and_no_further():
    """exp(−2 j ln(base) / d) with 50 digits."""
    with mp.workdps(50):
        right = [float(mpf(10_000) ** (mpf(-2 * j) / 32)) for j in range(16)]
    theta = all_cases()["rotation/half/all of 32/start/float64"].inputs["theta"]
    torch.testing.assert_close(theta, torch.tensor(right, dtype=torch.float64), rtol=3e-16, atol=0)


@pytest.mark.parametrize("position", [1, 1_000_000, 10_000_000, -7])
def test_cos_and_sin_are_those_of_the_exact_product(position):
    theta = all_cases()["rotation/half/all of 64/start/float64"].inputs["theta"]
    found = cases.turns(torch.tensor([position]), theta)[0]
    with mp.workdps(50):
        angles = [position * mpf(turn) for turn in theta.tolist()]
        right = torch.tensor(
            [complex(mp.cos(a), mp.sin(a)) for a in angles], dtype=torch.complex128
        )
    torch.testing.assert_close(found, right, rtol=0, atol=4e-16)
    if abs(position) > 100:
        naive = torch.polar(torch.ones_like(theta), position * theta)
        assert (naive - right).abs().max() > 4e-16


ROTATIONS = [
    "rotation/interleaved/first of 32/far/float32",
    "rotation/half/last of 64/farthest/bfloat16",
    "rotation/interleaved/all of 64/per head/float16",
    "config/Llama-3.1-8B-Instruct/layer 0/edge/float32",
    "config/DeepSeek-V3 / R1/layer 0/far/bfloat16",
    "config/Qwen2.5-VL-7B-Instruct/layer 0/padded/float32",
]


@pytest.mark.parametrize("name", ROTATIONS)
def test_a_rotation_is_the_complex_product_rounded_once(name):
    """By loops over texts, heads, tokens and pairs, in 50 digits."""
    case = all_cases()[name]
    theta, pos, q = (case.inputs[key] for key in ("theta", "positions", "q"))
    rotated, start = q.clone(), case.settings["start"]
    axes = theta if theta.ndim == 2 else theta[None]
    points = pos if theta.ndim == 2 else pos[..., None]
    while points.ndim < 4:
        points = points[:, None] if points.ndim == 3 else points[None]
    pairs = theta.shape[-1]
    for b, h, t in torch.cartesian_prod(*map(torch.arange, q.shape[:3])).tolist():
        point = points[b % len(points), h % points.shape[1], t].tolist()
        for j in range(pairs):
            here = 2 * j, 2 * j + 1
            if case.settings["layout"] == "half":
                here = j, j + pairs
            first, second = (start + n for n in here)
            with mp.workdps(50):
                angle = sum(p * mpf(float(axis[j])) for p, axis in zip(point, axes, strict=True))
                cos, sin = (case.settings["gain"] * f(angle) for f in (mp.cos, mp.sin))
                a, b_ = q[b, h, t, first].item(), q[b, h, t, second].item()
                rotated[b, h, t, first] = float(a * cos - b_ * sin)
                rotated[b, h, t, second] = float(b_ * cos + a * sin)
    right = rotated.to(cases.PRECISIONS[case.settings["precision"]])
    found = case.outputs["rotated_q"]
    assert found.dtype == right.dtype
    if right.dtype == torch.float64:
        torch.testing.assert_close(found, right, rtol=0, atol=1e-15)
    else:
        assert found.equal(right)


def test_the_bias_of_alibi_is_that_of_its_formula():
    """Slopes 2^(−8h/heads) by hand, arXiv:2108.12409."""
    case = all_cases()["encoding/ALiBi/8x2/shuffled"]
    q, k, pos = (case.inputs[name].tolist() for name in ("q", "k", "positions"))
    for h, slope in enumerate((2**-4, 2**-8)):
        for i, p in enumerate(pos):
            for j, r in enumerate(pos):
                dot = sum(a * b for a, b in zip(q[0][h][i], k[0][h][j], strict=True))
                right = dot / 8**0.5 - slope * abs(p - r)
                assert case.outputs["scores"][0, h, i, j].item() == pytest.approx(right, abs=1e-12)


def test_positions_of_padding_and_packing_change_what_they_should():
    made = all_cases()
    packed = made["encoding/Sinusoidal/8x2/packed"]
    rows = packed.outputs["embeddings"] - packed.inputs["x"]
    assert rows[0, 4].equal(rows[0, 0])
    start = made["encoding/Sinusoidal/8x2/start"]
    assert not (start.outputs["embeddings"] - start.inputs["x"])[0, 4].equal(rows[0, 4])


def test_a_window_sees_itself_and_those_before_it():
    seen = all_cases()["mask/window 4/all"].outputs["seen"][0]
    for p in range(8):
        assert seen[p].tolist() == [0 <= p - r < 4 for r in range(8)]
