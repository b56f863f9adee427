"""The stops of the tour: each number that is said is held against Python, each figure drawn."""

import math
import re
from itertools import pairwise

import pytest
import torch
from javascript import evaluate

import posenc
from posenc import attend, create
from posenc.analysis import toy

pytestmark = pytest.mark.slow

WIDTH, DIM, WORDS = 64, 16, "the old dog chased another dog".split()
ORDER = [4, 2, 0, 5, 1, 3]
SEEDED = """({ words, seeds }) => ({
  words: words.map((word) => Array.from(vectorOf(word, 64))),
  normals: Object.fromEntries(
    Object.entries(seeds).map(([seed, count]) => [seed, Array.from(normals(+seed, count))])),
})"""
SEEDS = {
    3: 200 * WIDTH,
    11: WIDTH * DIM,
    12: WIDTH * DIM,
} | dict.fromkeys((23, 24, 25), DIM)


@pytest.fixture(scope="module")
def seeded():
    """The numbers that the page draws by its seeds: vectors of words, projections."""
    found = evaluate(
        ["interpreter.js", "page/compute.js"], SEEDED, {"words": WORDS, "seeds": SEEDS}
    )
    each = {int(seed): torch.tensor(one).double() for seed, one in found["normals"].items()}
    return torch.tensor(found["words"]).double(), each


def rows(name, pos):
    """Return the rows that an encoding adds at these positions."""
    one, pos = create(name, DIM, WIDTH // DIM), torch.as_tensor(pos)
    x = torch.zeros(1, len(pos), WIDTH, dtype=torch.float64)
    return one.on_embeddings(x, one.prepare(pos))[0].double()


def attended(x, seeds, causal=False):
    """One head of attention without an encoding, whose values are the words themselves."""
    q, k = (x @ seeds[seed].view(WIDTH, DIM) / WIDTH**0.5 for seed in (11, 12))
    mask = posenc.masks.causal() if causal else None
    return attend(*(one[None, None] for one in (q, k, x)), create("nope"), mask=mask)[0, 0]


def decided(scores):
    """The share of the variance of scores that their diagonals' means have."""
    n = len(scores)
    means = {o: scores.diagonal(-o).mean() for o in range(1 - n, n)}
    by = torch.stack([torch.stack([means[i - j] for j in range(n)]) for i in range(n)])
    return 100 * (((by - scores.mean()) ** 2).sum() / ((scores - scores.mean()) ** 2).sum())


def shuffled(words, seeds):
    before, after = attended(words, seeds), attended(words[ORDER], seeds)
    assert (before[ORDER] - after).abs().max() < 1e-9
    return [10, (before - after).abs().max()]


def twins(words, seeds):
    each = (attended(words, seeds, causal) for causal in (False, True))
    return [(out[2] - out[5]).abs().max() for out in each]


def drowned(words, seeds):
    word = (seeds[3].square().sum() / 200).sqrt()
    plain = rows("integer", torch.arange(128))[100].norm()
    return [64, word, 100, plain, plain / word, rows("sinusoidal", range(128))[100].norm()]


def shares(words, seeds):
    return [1 / 8, 8, 1 / 32, 32]


def jumps(words, seeds):
    bits = [torch.tensor([n >> b & 1 for b in range(7)]) for n in range(65)]
    flips = [(a != b).sum() for a, b in pairwise(bits)]
    code = [(a - b).norm() for a, b in pairwise(rows("binary", range(65)))]
    size = code[0]  # of one bit, which several channels may hold
    assert max(code) / size == pytest.approx(math.sqrt(max(flips)))
    step = (rows("sinusoidal", [0]) - rows("sinusoidal", [1])).norm()
    return [min(code), max(code), max(flips), 63, 64, step]


def repeats(words, seeds):
    longest = 2 * math.pi * 10_000 ** (62 / 64)
    first, second, far = rows("sinusoidal", [0, 1, 62832])
    return [64, longest, 10_000, 2, 1, 62832, (first - far).norm(), (first - second).norm()]


def similarity(words, seeds):
    dot = [sum(math.cos(p * 10_000 ** (-2 * j / 64)) for j in range(32)) for p in range(1001)]
    rises = [p for p in range(1000) if dot[p + 1] > dot[p]]
    return [64, rises[0], rises[0] + 1, len(rises) / 10]


def projected(words, seeds):
    waves = rows("sinusoidal", range(64))
    draws = sorted(
        decided(waves @ square(2 * draw) @ square(2 * draw + 1).T @ waves.T) for draw in range(40)
    )
    rope, at = create("rope", DIM, 1), torch.arange(64)
    turned = [
        hook(seeds[seed].expand(1, 1, 64, DIM), rope.prepare(at))[0, 0].double()
        for hook, seed in ((rope.on_queries, 23), (rope.on_keys, 24))
    ]
    kept = decided(turned[0] @ turned[1].T)
    return [decided(waves @ waves.T), draws[20], 40, draws[0], draws[39], kept]


def square(number):
    return toy.normals(100 + number, WIDTH**2).view(WIDTH, WIDTH)


def fading(words, seeds):
    theta = [10_000 ** (-2 * j / DIM) for j in range(DIM // 2)]
    ones = [sum(math.cos(p * t) for t in theta) for p in range(128)]
    rises = sum(b > a for a, b in pairwise(ones))
    a, b = seeds[25].view(-1, 2).T
    made = [
        sum((a[j] ** 2 + b[j] ** 2) * math.cos((p - 77) * t) for j, t in enumerate(theta))
        for p in range(128)
    ]
    return [DIM, 100 * rises / 127, 77, made.index(max(made))]


def unseen(words, seeds):
    def turning(dim):
        return 2 * sum(2 * math.pi * 10_000 ** (2 * j / dim) <= 4096 for j in range(dim // 2))

    return [128, 10_000, 4096, 2, turning(128), 128 - turning(128), 4096, 16, turning(16), 16]


def crossed(words, seeds):
    """A patch's scores by cosines of its offsets; how far from a sum of a row's and a column's."""
    off = []
    for name in ("axial-rope", "rope-mixed"):
        torch.manual_seed(0)
        freqs = create(name, DIM, 4).freqs.detach().double()
        freqs = freqs if freqs.ndim == 3 else freqs[:, None]  # (axis, head, pair)
        place = torch.cartesian_prod(torch.arange(-7, 8), torch.arange(-7, 8)).double()
        scores = torch.einsum("na,ahp->nhp", place, freqs).cos().sum(-1).mean(-1).view(15, 15) * 0.5
        sums = scores[:, 7:8] + scores[7:8] - scores[7, 7]
        off.append((scores - sums).abs().max())
    assert off[0] < 1e-6
    return [15, 15, 10, off[1]]


def itself(distance):
    """The score of a word for the same word, as a sum over pairs, of distances in any unit."""
    q, k = (
        toy.vector("dog", WIDTH) @ toy.normals(seed, 1024).view(64, 16) / 8 for seed in (11, 12)
    )
    q, k = (torch.view_as_complex(one.double().view(-1, 2)) for one in (q, k))
    theta = 10_000 ** (-2 * torch.arange(DIM // 2).double() / DIM)
    return (q * k.conj() * torch.exp(1j * theta * distance)).real.sum() / DIM**0.5


def melting(words, seeds):
    trained, divided = (itself(0) - itself(step) for step in (1, 1 / 16))
    return [trained, divided, 16, trained / divided]


def rounded(words, seeds):
    at = torch.arange(39_000, 41_001).float()
    same = at[at.bfloat16() == torch.tensor(40_000.0).bfloat16()]
    assert (same.diff() == 1).all()
    step = torch.tensor(40_256.0).bfloat16() - torch.tensor(40_000.0).bfloat16()
    first = float(torch.tensor(40_000.0).bfloat16())
    return [16, 8, 40_000, step, len(same), first, itself(1), 16, itself(0), 16]


def windows(words, seeds):
    slopes = create("alibi", DIM, 4).slopes.double()
    return [1, *(math.floor(math.log(100) / slope) for slope in slopes), 4]


def gated(words, seeds):
    """The last word for the first: the sum of the gates between, each by the layer's own hook."""
    out = []
    for name in ("fox", "alibi"):
        for sentence in (WORDS, [*WORDS[:3], ".", *WORDS[4:]]):
            torch.manual_seed(0)
            one = create(name, DIM, 4)
            out.append(-toy.added(one, sentence)[0, 0, 5, 0])  # written with a minus
    return out


STOPS = [
    shuffled, twins, drowned, shares, jumps, repeats, similarity, projected, fading, unseen,
    crossed, melting, rounded, windows, gated,
]  # fmt: skip


@pytest.fixture(scope="module")
def page(chromium, tmp_path_factory):
    file = posenc.explore("rope").save(tmp_path_factory.mktemp("tour") / "explore.html")
    page = chromium.new_page()
    page.goto(f"{file.as_uri()}#v1/tour?stop=1")
    page.wait_for_selector("html[data-ready]")
    yield page
    page.close()


@pytest.mark.parametrize("number", range(1, len(STOPS) + 1))
def test_each_number_of_a_stop_is_what_python_computes(page, seeded, number):
    page.evaluate(f"location.hash = '#v1/tour?stop={number}'")
    page.get_by_text(f"Stop {number} of {len(STOPS)}").wait_for()
    text = page.inner_text(".said")
    said = re.findall(r"\d[\d,]*(?:\.\d+)?", text)
    expected = STOPS[number - 1](*seeded)
    assert len(said) == len(expected), text
    for written, wanted in zip(said, expected, strict=True):
        plain = written.replace(",", "")
        places = len(plain.partition(".")[2])
        assert float(plain) == pytest.approx(float(wanted), abs=0.501 * 10**-places), text


@pytest.mark.parametrize("number", range(1, len(STOPS) + 1))
def test_the_figure_of_a_stop_is_drawn_and_its_view_opens(page, number):
    page.evaluate(f"location.hash = '#v1/tour?stop={number}'")
    page.get_by_text(f"Stop {number} of {len(STOPS)}").wait_for()
    figures = page.locator("figure:visible")
    assert figures.count() == (2 if STOPS[number - 1] is crossed else 1)
    figure = figures.last
    if figure.locator("canvas").count():
        colours = figure.locator("canvas").evaluate(
            "c => new Set(new Uint32Array(c.getContext('2d')"
            ".getImageData(0, 0, c.width, c.height).data.buffer)).size"
        )
        # of a gate on all words before it only a block changes: one colour, nothing, and hidden
        assert colours >= (3 if STOPS[number - 1] is gated else 11)
    else:
        for line in figure.locator("polyline").all():
            assert len((line.get_attribute("points") or "").split()) >= 8
        assert figure.locator("polyline").count() >= 1
    page.get_by_role("link", name="Open it in its view").click()
    page.wait_for_selector("main > :not(.tour)")
    assert page.locator(".instead").count() == 0
    assert page.locator("figure:visible, .board:visible, .circles:visible").count() >= 1
