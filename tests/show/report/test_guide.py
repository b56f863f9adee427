"""The guide against the configs of published models, the stores by SQL, and where it is shown."""

import json
import re
from inspect import signature
from pathlib import Path
from statistics import fmean
from struct import unpack

import pytest
from stored_outcomes import (
    by_seed,
    cost_of_reading_on,
    labelled,
    mean,
    means,
    names,
    rows,
    settings,
)

from posenc.analysis.dials import by_method
from posenc.catalog import CATALOG
from posenc.encodings.rotary.axial import AxialRoPE
from posenc.encodings.rotary.mixed import Mixed
from posenc.encodings.rotary.theta import frequencies
from posenc.models import config, published
from posenc.models.config.spec import Rotary
from posenc.show.report import guide

ROOT = Path(__file__).parents[3]
CONFIGS = json.loads(Path(published.__file__).with_name("published.json").read_text("utf-8"))
IN_CARDS = {name for card in CATALOG for name in card.used_by.split(", ")}


def layers(begin):
    """Return (encoding, window) of each layer of the published models with this name."""
    specs = [
        config.specify(one).text_stack for name, one in CONFIGS.items() if name.startswith(begin)
    ]
    assert specs, begin
    return [[(layer.encoding, layer.window) for layer in spec.layers] for spec in specs]


def use(begin):
    (one,) = (one for one in guide.GUIDE if one.use.startswith(begin))
    return one


def named(text):
    """The models that a sentence names: words with a capital or a digit, as they are written."""
    return re.findall(r"[\w.]+-\w[\w.-]*|[A-Z]\w+ \d(?:\.\d)?|[A-Z]\w*\d\w*", text)


def test_each_model_that_is_named_is_published_or_in_a_card():
    each_known = {*CONFIGS, *IN_CARDS, *(card.name for card in CATALOG)}
    known = {name.lower().replace("-", " ") for name in each_known}
    count = 0
    for one in guide.GUIDE:
        for name in named(one.does):
            plain = name.lower().replace("-", " ")
            assert any(each.startswith(plain) for each in known), name
            count += 1
    assert count > 15


def test_long_readers_are_as_their_configs_say():
    said = use("a decoder to train on long").does
    assert "NoPE: Llama 4, EXAONE 4" in said
    for begin in ("Llama-4", "EXAONE-4"):
        for model in layers(begin):
            assert all((encoding is None) == (window is None) for encoding, window in model)
            assert {encoding is None for encoding, _ in model} == {True, False}
    (small,) = layers("SmolLM3")
    assert {window for _, window in small} == {None}
    assert {encoding is None for encoding, _ in small} == {True, False}
    for model in layers("Gemma-3"):
        local = {encoding.base for encoding, window in model if window}
        (far,) = {encoding.base for encoding, window in model if not window}
        assert max(local) < far
        assert sum(bool(window) for _, window in model) > len(model) / 2
    assert "Gemma 4" in next(card for card in CATALOG if card.slug == "p-rope").used_by


def test_the_short_table_has_seven_rows_of_three_short_cells():
    head, rule, *rows = guide.markdown().splitlines()
    assert head.count("|") == rule.count("|") == 4
    assert len(rows) == 7
    for row in rows:
        cells = row.strip("| ").split(" | ")
        assert len(cells) == 3
        assert max(len(cell.split()) for cell in cells) <= 20
        (basis,) = re.findall(r"\(\*(\w+)\*\)$", cells[2])
        assert basis in ("convention", "computed", "measured")


def test_the_page_has_each_part_of_each_row_and_each_number():
    page = guide.page()
    for one in guide.GUIDE:
        for part in (one.answer, one.because, one.basis, one.does, one.measured, one.unknown):
            assert part in page
    for name, bits in guide.READ.items():
        assert f"| {name} | {' | '.join(f'{one:.3f}' for one in bits)} |" in page
    for name, (near, far) in guide.COPIED.items():
        assert f"| {name} | {near} % | {far} % |" in page
    for name, (unique, repeated) in guide.COPIED_BEYOND.items():
        assert f"| {name} | {unique} % | {repeated} % |" in page
    for name, bits in guide.HIDDEN.items():
        assert f"| {name} | {bits:.3f} |" in page


@pytest.mark.repository
def test_the_page_links_to_the_studies_that_its_numbers_are_of():
    links = re.findall(r"\]\(\.\./studies/([\w-]+)\)", guide.page())
    assert links == ["fair-text", "shape-copy", "content-or-place-10", "one-period-8", "masked"]
    assert all((ROOT / "studies" / link / "results.db").exists() for link in links)


def test_numbers_of_the_short_table_are_those_that_are_measured():
    """A number of a reason is on the page with its exact value, or is rounded from it."""
    exact = [*guide.NEW_ANGLES.values(), *guide.EQUAL.values(), 64, 16, 2]
    exact += [number for numbers in guide.READ.values() for number in numbers]
    rows = [one for one in guide.GUIDE if one.basis != "convention"]
    said = [(one.basis, number) for one in rows for number in re.findall(r"\d+\.?\d*", one.because)]
    assert {basis for basis, _ in said} == {"computed", "measured"}
    for _, number in said:
        places = len(number.partition(".")[2])
        assert any(abs(float(number) - one) <= 0.5001 * 10**-places for one in exact), number


def test_who_reads_through_windows_is_what_their_configs_say():
    said = use("a trained RoPE model, left").does
    assert (
        said
        == "Gemma-3, gpt-oss and Olmo-3.1 have attention windows in half of their layers or more"
    )
    for begin in ("Gemma-3", "gpt-oss", "Olmo-3.1"):
        for model in layers(begin):
            assert sum(bool(window) for _, window in model) >= len(model) / 2


def test_who_was_extended_by_yarn_is_what_their_configs_say():
    said = use("a trained RoPE model, longer").does
    yarn, _, own = said.partition("; methods of their own: ")
    for begin in ("DeepSeek-V3", "Kimi-K2", "gpt-oss", "Olmo-3.1"):
        assert begin in yarn
        assert all(
            "yarn" in {one.method for one, _ in model if isinstance(one, Rotary)}
            for model in layers(begin)
        )
    assert own == "Llama 3.1, Phi-3.5"
    for begin, method in (("Llama-3.1", "llama3"), ("Phi-3.5", "longrope")):
        for model in layers(begin):
            assert {one.method for one, _ in model if isinstance(one, Rotary)} == {method}


def test_new_angles_are_those_of_the_dials():
    found = by_method(frequencies(128, 500_000), 8_192, 131_072)
    ways = {"as trained": "none", "NTK": "ntk", "PI": "interpolate", "YaRN": "yarn"}
    counts = {name: sum(dial.new > 0 for dial in found[way]) for name, way in ways.items()}
    assert counts == guide.NEW_ANGLES


@pytest.mark.repository
def test_no_way_pays_where_models_were_trained_without_one():
    """The cases of docs/extend_cases.md whose model was trained with no method."""
    page = (ROOT / "docs/extend_cases.md").read_text("utf-8")
    cases = [line.split(" | ") for line in page.splitlines() if line.startswith("| ")][2:]
    plain = [one for one in cases if " with " not in one[0]]
    assert len({one[0] for one in plain}) == 4
    assert {int(one[1]) for one in plain} == {128, 192, 256, 512}  # of 64
    assert {one[3] for one in plain} == {"none"}
    said = use("a trained RoPE model, longer").measured
    assert "four small models" in said
    assert "two to eight times the 64 tokens of their configs" in said
    saved = [float(one[6]) - float(one[5]) for one in plain]  # the best against the last 64
    assert max(saved) < 0.01
    assert f"one of the four, trained on 128 letters, needs {guide.TWICE[0]}" in said
    longer = ["trained on 128" in one[0] for one in plain]
    assert sum(longer) == 4  # its four lengths
    # The last column but one has the methods that no config can state
    saved = [float(one[6]) - float(one[8]) for one in plain]
    most = max(bits for bits, twice in zip(saved, longer, strict=True) if twice)
    assert most == pytest.approx(guide.REMAPPED, abs=1e-9)
    assert max(bits for bits, twice in zip(saved, longer, strict=True) if not twice) < 0.01
    best = {one[7] for one, twice in zip(plain, longer, strict=True) if twice}
    assert best == {"ReRoPE", "Self-Extend"}


@pytest.mark.repository
def test_the_stores_hold_these_numbers():
    slug = lambda name: name.lower()  # noqa: E731
    places = (64, False), (128, False), (128, True)  # n, and whether it is cropped
    bits = {
        name: tuple(round(mean("fair-text", slug(name), n, cropped=cut), 3) for n, cut in places)
        for name in guide.READ
    }
    assert bits == guide.READ
    assert {slug(name) for name in guide.READ} == names("fair-text") - {"rope in a window"}
    costs = {name: fmean(cost_of_reading_on("fair-text", slug(name))) for name in guide.READ}
    assert min(costs.values()) > -1e-4
    assert {name for name, cost in costs.items() if cost < 0.01} == {"KERPLE", "FoX"}
    assert abs(costs["FoX"]) < 5e-4
    assert min(guide.READ, key=lambda name: guide.READ[name][2]) == "T5"
    windowed = [
        bits
        for (_, name, n, _), bits in means("fair-text", "windowed").items()
        if (name, n) == ("rope", 128)
    ]
    assert round(fmean(windowed), 3) == guide.WINDOWED
    assert {
        name: tuple(round(100 * mean("shape-copy", slug(name), n)) for n in (12, 14))
        for name in guide.COPIED
    } == guide.COPIED
    for name, shares in guide.COPIED_BEYOND.items():
        row = "taught" if "trained" in name else slug(name)
        assert shares == tuple(
            round(100 * mean(f"content-or-place-10#{task}", row, *range(11, 21)))
            for task in ("copy-unique", "copy")
        )
    for period, shares in guide.ONE_PERIOD.items():
        assert shares == tuple(
            round(100 * mean("one-period-8", row, 8 + period + more))
            for row, more in (
                (f"period {period}", 0),
                (f"period {period}", 1),
                ("none", 0),
                ("taught", 0),
            )
        )
    with_four = tuple(round(mean("shape-text", "alibi", 128, cropped=cut), 3) for cut in (0, 1))
    assert with_four == guide.ALIBI
    assert {cell["profile"]["heads"] for cell in settings("shape-text")} == {4}
    assert {cell["profile"]["heads"] for cell in settings("fair-text")} == {2}
    page = (ROOT / "docs/extend_cases.md").read_text("utf-8")
    assert (
        f"trained on 128 tokens | 128 | none | none | 2.372 | {guide.TWICE[0]} | {guide.TWICE[1]} |"
        in page
    )
    hidden = {name: round(mean("masked", slug(name), 16, 32), 3) for name in guide.HIDDEN}
    assert hidden == guide.HIDDEN
    others = {"cope", "path", "wall", "selective-rope"}
    studies = [path.parent.name for path in (ROOT / "studies").glob("*/results.db")]
    assert len(studies) > 5
    assert not others & {name for study in studies for name in names(study)}


@pytest.mark.repository
def test_it_names_length_rate_steps_and_seeds_of_the_studies():
    first, beyond = guide.GUIDE[0], use("a trained RoPE model, left")
    for said, study, begin in (
        (first.measured, "fair-text", "L = "),
        (beyond.measured, "shape-copy", "copy L = "),
    ):
        cells = settings(study)
        (trained,) = {cell["trained"] for cell in cells}
        (profile,) = {(cell["profile"]["rate"], cell["profile"]["steps"]) for cell in cells}
        seeds = len({cell["seed"] for cell in cells})
        rates = {
            json.loads(x)["profile"]["rate"] for (x,) in rows(study, "SELECT settings FROM cells")
        }
        rate = f"learning rate {profile[0]}"
        if len(rates) == 3:
            assert profile[0] == max(rates)
            rate = f"learning rate {profile[0]}, the largest of the three tried, for every encoding"
        assert f"{begin}{trained} " in said
        assert f"{rate}, {profile[1]:,} steps, {seeds} seeds)" in said


@pytest.mark.repository
def test_what_is_quoted_of_texts_and_of_copying_is_qualified():
    said = use("a trained RoPE model, left").measured
    assert "two heads" in said
    assert "with four" in said
    assert "6 to 10 letters" in said
    assert "which may repeat" in said
    assert "pilot of one seed" in said
    recall = "use-of-length#recall"
    found = tuple(round(100 * mean(recall, name, 40)) for name in ("rope", "window"))
    assert found == guide.RECALLED
    assert f"finds {found[0]} % of the answers at 2 L, and {found[1]} % in a window of L" in said
    assert {cell["trained"] for cell in settings(recall)} == {20}
    assert len({cell["seed"] for cell in settings(recall)}) == 1


def test_most_published_models_turn_in_all_layers():
    """Who does it, of the first row: three that are named, and most of the others."""
    said = guide.GUIDE[0].does
    assert said == "Llama 3.1, Qwen3, phi-4 and most others, in all layers"
    everywhere = {
        name
        for name, one in CONFIGS.items()
        if all(isinstance(x.encoding, Rotary) for x in config.specify(one).text_stack.layers)
    }
    assert everywhere > {"Llama-3.1-8B-Instruct", "Qwen3-8B", "phi-4"}
    assert len(everywhere) > len(CONFIGS) / 2


def test_no_published_model_has_a_bias_that_is_recommended():
    assert use("a decoder to train, to read").does == (
        "none of the models whose configs are packaged"
    )
    kinds = {
        type(layer.encoding).__name__
        for one in CONFIGS.values()
        for layer in config.specify(one).text_stack.layers
        if layer.encoding is not None
    }
    assert kinds == {"Rotary"}


@pytest.mark.repository
def test_equal_rows_are_equal_within_their_margins():
    """Two one-sided t tests over seeds and prompts, by sums of squares; and not within less."""
    degrees = 199  # of the prompts, which vary more than the seeds: t is near normal
    for name, margin in guide.EQUAL.items():
        rows = [
            prompts("fair-text", name.lower(), "sliding"),
            prompts("fair-text", "rope", "cropped"),
        ]
        apart = [[y - x for x, y in zip(*both, strict=True)] for both in zip(*rows, strict=True)]
        middle = fmean(map(fmean, apart))
        least = abs(middle) + 1.653 * crossed_error(apart)
        assert degrees == len(apart[0]) - 1
        assert margin - 0.0025 < least < margin + 0.0005


def prompts(study, label, protocol):
    """By seed, bits of each text: the mean over lengths from L to 2 L."""
    texts = {}
    for found, cell, n, data in rows(
        study,
        "SELECT label, settings, length, data FROM cells JOIN outcomes USING (digest)"
        f" WHERE protocol = '{protocol}'",
    ):
        cell = json.loads(cell)
        if (found or cell["encoding"]) == label and 64 < n <= 128 and cell["seed"] <= 10_000:
            texts.setdefault(cell["seed"], []).append(unpack(f"<{len(data) // 4}f", data))
    return [[fmean(each) for each in zip(*texts[seed], strict=True)] for seed in sorted(texts)]


def crossed_error(table):
    """The standard error of a mean over seeds and prompts, of which none is shared by chance."""
    seeds, texts = len(table), len(table[0])
    middle = fmean(map(fmean, table))
    by_seed, by_text = [*map(fmean, table)], [*map(fmean, zip(*table, strict=True))]
    of_seeds = sum((x - middle) ** 2 for x in by_seed) / (seeds - 1) / seeds
    of_texts = sum((x - middle) ** 2 for x in by_text) / (texts - 1) / texts
    rest = sum(
        (table[i][j] - by_seed[i] - by_text[j] + middle) ** 2
        for i in range(seeds)
        for j in range(texts)
    )
    left = rest / ((seeds - 1) * (texts - 1)) / (seeds * texts)
    return max(of_seeds + of_texts - left, of_seeds, of_texts) ** 0.5


SIDES = {
    "a learned table that is resized": "resized table",
    "axial RoPE": "axial-rope",
    "sinusoids": "sinusoids",
    "RoPE-Mixed": "rope-mixed",
    "no encoding": "nope",
}


@pytest.mark.repository
def test_its_row_of_pictures_says_what_the_study_found():
    """All rows with positions have learned the task, and the bases are the encodings' own."""
    share = lambda name, n: round(100 * mean("marks-8", name, n))  # noqa: E731
    assert guide.SIDES == {said: (share(row, 12), share(row, 16)) for said, row in SIDES.items()}
    assert share("taught", 16) == guide.SIDES_TAUGHT
    weak = {name: sum(x < 0.95 for x in by_seed("marks-8", name, 8)) for name in SIDES.values()}
    assert [name for name, seeds in weak.items() if seeds] == ["resized table", "nope"]
    assert weak["resized table"] == 1
    said = use("pictures").measured
    cells = [cell for label, cell in labelled("marks-8") if label in SIDES.values()]
    assert {cell["trained"] for cell in cells} == {8}
    assert {cell["profile"]["rate"] for cell in cells} == {0.004}
    assert {cell["profile"]["steps"] for cell in cells if cell["encoding"] != "nope"} == {600}
    seeds = {len(by_seed("marks-8", name, 16)) for name in [*SIDES.values(), "taught"]}
    assert seeds == {6}
    assert "(studies/marks-8, 6 seeds, learning rate 0.004, 600 steps)" in said
    bases = [signature(make).parameters["base"].default for make in (AxialRoPE, Mixed)]
    assert "axial RoPE is {:,.0f}, that of RoPE-Mixed {:.0f}".format(*bases) in said


@pytest.mark.repository
def test_it_names_length_steps_and_seeds_of_the_encoders():
    cells = settings("masked")
    assert {cell["trained"] for cell in cells} == {32}
    assert {cell["profile"]["steps"] for cell in cells} == {3_000}
    assert len({cell["seed"] for cell in cells}) == 8
    assert len({cell["profile"]["rate"] for cell in cells}) > 1
    said = use("an encoder").measured
    assert "(L = 32 words, a learning rate chosen for each encoding, 3,000 steps, 8 seeds)" in said
    without, rows = (by_seed("masked", name, 16, 32) for name in ("nope", "learned"))
    assert all(abs(x - y) < 0.1 for x, y in zip(without, rows, strict=True))


def test_what_does_not_extrapolate_is_recommended_to_nobody():
    """At 1.4 L nobody copies one text in twenty, and reading on needs no fewer bits."""
    assert max(far for _, far in guide.COPIED.values()) < 5
    assert all(cropped <= on for _, on, cropped in guide.READ.values())
    assert use("a trained RoPE model, left").answer.startswith("only the last L tokens")
    assert use("a decoder to train, to read beyond").answer == "KERPLE or FoX"
    lost = {name: on - cropped for name, (_, on, cropped) in guide.READ.items()}
    assert sorted(lost, key=lambda name: lost[name])[:2] == ["FoX", "KERPLE"]
    answers = " ".join(one.answer for one in guide.GUIDE)
    assert not re.search("ALiBi|T5|Transformer-XL", answers)


@pytest.mark.repository
def test_readme_and_the_page_have_the_same_rows(everything):
    from posenc.show.report import page

    assert guide.markdown() in (ROOT / "README.md").read_text("utf-8")
    assert (ROOT / "docs/guide.md").read_text("utf-8") == guide.page()
    html = page.render(everything)
    for one in guide.GUIDE:
        assert f"<summary>{one.use}: <b>" in html
        assert one.because.replace("'", "&#39;") in html
        assert all(part in html for part in one.answer.split("`")[::2])


def test_the_list_by_use_prints_every_row(capsys, monkeypatch):
    from posenc.commands.catalog import list_

    list_(by="use", as_json=True)
    assert [row["answer"] for row in json.loads(capsys.readouterr().out)] == [
        one.answer for one in guide.GUIDE
    ]
    monkeypatch.setenv("COLUMNS", "10000")
    list_(by="use")
    printed = capsys.readouterr().out
    for one in guide.GUIDE:
        assert one.answer in printed
        assert f"{one.because} ({one.basis})" in printed
        assert one.unknown.replace("*", "") in printed
