"""Claims of pages on studies: the test of each, facts of all studies, and withdrawn claims."""

import json
import re
import tomllib
from collections import Counter

import pytest
import torch
from published import KINDS as TYPES
from published import MODELS
from stored_outcomes import (
    STUDIES,
    by_seed,
    labelled,
    mean,
    means,
    names,
    rows,
)

from posenc import attend, create, masks
from posenc.models.config.families import family, model_types
from posenc.positions.diffusion import DIFFUSION
from posenc.positions.rules import RULES

pytestmark = pytest.mark.repository
ROOT = STUDIES.parent
KINDS = ("*.py", "*.js", "*.html", "*.json", "*.md", "*.ipynb")

# A pattern of each withdrawn claim, in its old words so that it does not return → the correction
WITHDRAWN = {
    r"fast pairs (that )?stand in the way": "at 1.6 L four pairs of the fastest speed copy most",
    r"all must be slow": "slow and still pairs did not differ, and the order at 1.6 L is another",
    r"slowest copy as well as no": "no difference shown is not equality",
    r"price is paid within the trained length": "a schedule of 2,000 steps, and no contrast of it",
    r"no text longer than those of training is copied": "the fastest speed alone does, at 1.6 L",
    r"T5 and RoPE are undecided": "of one learning rate, at which T5 is trained less far",
    r"ALiBi, T5, or NoPE": "RoPE cropped to L needs fewer bits than each of them",
    r"RoPE none; of large models": "at 1.2 L, by a study that can decide no contrast",
    r"copy texts as large ones are published": "T5 copies a fifth of what is published",
    r"one is decided after Holm": "near-doubles counted twice, and three seeds",
    r"only learned is decided": "near-doubles counted twice, and three seeds",
    r"nobody has compared them": "FoX is in properties-text",
    r"which encodings can do a thing": "what fails at one rate and 2,000 steps may do it elsewhere",
    r"only what holds": "it holds at a length, a rate and some steps",
    r"four slowest are as good as none": "no difference shown is not equality",
    r"larger base changes nothing": "neither side copied any: a floor, no equality",
    r"nothing of this is left": "no difference shown is not equality",
    r"stand first of all": "cropping to L was left out",
    r"registered hypothesis, that .{0,120} is wrong there": "not borne out, at one rate",
    r"texts of 1.2 times the trained length rightly": "without 1.4 L, rate, steps and seeds",
    r"(none|nobody|no row)( is shown to)? (gains?|make use)": "no text of theirs needs far letters",
    r"best of three (learning )?rates": "every row took the largest of the three",
    r"this test decides": "NoPE passes it",
    r"loss still falls": "the cosine schedule ends there, so that every loss falls",
    r"were made on another processor than": "the store names no processor",
    r"two to eight times their length": "one of the four had been trained on 128 letters",
    r"two equal the cropped RoPE": "T5 equals it too, within 0.023 bits",
    r"in the trained [0-9,{]": "a config states a length, which need not be that of training",
    r"come to angles that the model has never seen": "the config need not state what it has seen",
    r"is the same in every order, until": "under a causal mask it is not",
    r"that (come up|are asked) most often": "nobody counted them",
    r"\bLlama, Qwen, Mistral and Gemma in": "Llama 4's channels are interleaved",
    r"Its table has 512 rows": "RoBERTa's has 514",
    r"no length to exceed": "a model with ALiBi needs 1.27 bits more at 2 L than when cropped",
    r"saw every angle in training": "a config does not state the trained length",
}


def pages():
    for folder in ("docs", "studies", "examples", "src/posenc", "tools"):
        for kind in KINDS:
            yield from (ROOT / folder).rglob(kind)
    yield from ROOT.glob("*.md")


@pytest.fixture(scope="module")
def said():
    """Every page, each on one line and without marks of emphasis.

    A paper's list of claims that did not hold is left out.
    """
    listed = re.compile("## Earlier claims that did not hold.*?(?=## )", re.DOTALL)
    return {
        path: re.sub(r"[*`\s\"#]+", " ", listed.sub("", path.read_text("utf-8")))
        for path in pages()
    }


@pytest.mark.parametrize("claim", WITHDRAWN)
def test_what_was_taken_back_does_not_come_back(said, claim):
    found = [path for path, text in said.items() if re.search(claim, text, re.IGNORECASE)]
    assert not found, f"{found} repeats a withdrawn claim: {WITHDRAWN[claim]}."


def test_pages_of_all_kinds_are_looked_through(said):
    names = {str(path.relative_to(ROOT)) for path in said}
    assert names >= {
        "README.md", "CHANGELOG.md", "studies/README.md", "studies/pairs-copy/finding.md",
        "docs/results.md", "src/posenc/show/report/guide.py",
        "src/posenc/show/explorer/page/tour.js",
        "src/posenc/show/report/kinds/study.html",
    }  # fmt: skip


def test_hypotheses_stand_in_plans_and_where_they_are_called_so(said):
    """Each hypothesis is called a hypothesis on the page of its study, and never a headline."""
    for plan in STUDIES.glob("*/plan.toml"):
        (hypothesis,) = re.findall(r'^hypothesis = "(.*)"$', plan.read_text(), re.M)
        text = (plan.parent / "README.md").read_text()
        assert (
            text.count(hypothesis)
            == text.count(f"as registered, not a finding: *{hypothesis}*")
            > 0
        )


@pytest.mark.parametrize("study", sorted(path.parent.name for path in STUDIES.glob("*/results.db")))
def test_all_rows_of_a_study_share_one_learning_rate_and_schedule(study):
    """Pages may then write "at one learning rate"; chosen rates are the same within a row.

    Rows for which the plan states a profile of their own are left out.
    """
    planned = tomllib.loads(rows(study, "SELECT text FROM plans")[-1][0])
    chosen = "rates" in planned
    own = {row["name"] for row in planned["encodings"] if "profile" in row}
    cells = [
        (f"{cell['task']} {label}" * chosen, cell["profile"]["rate"], cell["profile"]["steps"])
        for label, cell in labelled(study)
        if label not in own
    ]
    assert len({steps for *_, steps in cells}) == 1
    assert len({(label, rate) for label, rate, _ in cells}) == len({label for label, *_ in cells})


COMPARISONS = {  # what is said to be more or less than another, where, and the test that reads it
    ("source.md", "short texts better than long ones"):
        "test_a_row_without_positions_passes_the_test_of_aliasing",
    ("source.md", "makes all worse"): "test_what_it_says_of_bands_is_what_each_swap_came_to",
    ("pairs-text/finding.md", "cropping is better than reading on"):
        "test_cropping_needs_fewer_bits_in_every_row_at_every_length_with_every_seed",
    ("pairs-text/finding.md", "Slowing the fastest band makes everything worse"):
        "test_what_it_says_of_bands_is_what_each_swap_came_to",
    ("shape-text/finding.md", "needs fewer bits than one that reads all"):
        "test_cropping_needs_fewer_bits_in_every_row_at_every_length_with_every_seed",
    ("shape-text/finding.md", "needs fewer bits than RoPE"):
        "test_each_contrast_is_what_the_store_holds",
    ("shape-text/finding.md", "fewer bits than the five rows"):
        "test_cropping_needs_fewer_bits_in_every_row_at_every_length_with_every_seed",
    ("pairs-text/finding.md", "only the last L tokens needs fewer bits"):
        "test_cropping_needs_fewer_bits_in_every_row_at_every_length_with_every_seed",
    ("properties-text/finding.md", "Every row needs fewer bits at 2 L if it is cropped"):
        "test_cropping_needs_fewer_bits_with_every_encoding_but_fox",
    ("scenes.js", "fewer is better"): "test_reading_on_stands_beside_cropping",
    ("scenes.js", "seeds are better off with less"): "test_reading_on_stands_beside_cropping",
}  # fmt: skip
SPOKEN = (
    r"\b(better|worse|beats?|beaten|outperforms?|(fewer|more) (bits|texts|words) than"
    r"|(fewer|more|less) than (any|all|every)|needs? fewer|first of all)\b"
)
# Comparisons in a question or a prediction, which are not findings
ASKED = (
    r"copied better|copies? (a text|longer)|[Dd]o(es a)? decaying bias"
    r"|hether (rows|encodings) that read (on|the)|[Dd]oes an? (row|encoding) that reads (on|the)"
    r"|better (where|if) n − P"
)


@pytest.mark.parametrize(
    "page",
    ["README.md", "docs/glossary.md", "docs/paper/source.md", "CHANGELOG.md",
     "docs/speed.md", "docs/sources.md", "docs/properties.md", "docs/studies.md", "docs/guide.md",
     "studies/board/v2.md", "src/posenc/show/report/guide.py", "src/posenc/support/glossary.toml",
     *(f"studies/{path.parent.name}/finding.md" for path in sorted(STUDIES.glob("*/finding.md"))),
     "studies/use-of-length/pilot.md",
     *(f"src/posenc/show/explorer/page/{path.name}"
       for path in sorted((ROOT / "src/posenc/show/explorer/page").glob("*.js")))],
)  # fmt: skip
def test_each_comparison_has_a_test_that_reads_it(page):
    text = " ".join((ROOT / page).read_text("utf-8").split())
    tests = " ".join(path.read_text("utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
    found = []
    for match in re.finditer(SPOKEN, text):
        around = text[max(0, match.start() - 70) : match.end() + 60]
        known = [
            test for (name, said), test in COMPARISONS.items()
            if page.endswith(name) and said in around
        ]  # fmt: skip
        assert all(f"def {test}(" in tests for test in known)
        if not known and not re.search(ASKED, around):
            found.append(around)
    assert not found


# What is said of models, encodings and studies beside their numbers -----------------------------


def page(name):
    return " ".join((ROOT / name).read_text("utf-8").split())


def test_which_models_pair_channels_in_which_way():
    """By the record of transformers' models that the configs are read with."""
    known = {name: family(name) for name in model_types()}
    layout = {name: one.layout for name, one in known.items() if one and one.kind == "rotary"}
    said = page("docs/faq.md")
    assert "Llama 2 and 3, Qwen, Mistral 7B and Gemma in transformers use `half`" in said
    halves = [name for name in layout if re.match(r"(qwen|gemma)\d|llama$|mistral$|gemma$", name)]
    assert len(halves) > 10
    assert {layout[name] for name in halves} == {"half"}
    assert "The RoPE paper, GPT-J, GLM-4 and Llama 4 use `interleaved`" in said
    assert {layout[name] for name in ("gptj", "glm4", "llama4_text")} == {"interleaved"}
    assert "as Llama 2, Llama 3 and most other models in transformers do" in page("docs/using.md")
    assert sum(one == "half" for one in layout.values()) > len(layout) / 2


def test_most_kinds_of_layers_in_transformers_turn():
    """ "Most open decoders use it", of the stacks that are read and have positions at all."""
    kinds = [one.kind for name in model_types() if (one := family(name)) and one.causal]
    others = {*kinds} - {"rotary", "refused", "parts", "nothing", "given"}
    assert others == {"learned", "sinusoidal", "none"}  # of biases, the type is "none"
    assert kinds.count("rotary") > sum(kinds.count(kind) for kind in others)


def test_the_census_is_quoted_as_it_stands():
    counts = dict(
        re.findall(r"^- (.+): (\d+)$", (ROOT / "docs/census.md").read_text("utf-8"), re.M)
    )
    assert f"{counts['right']} types are supported, and {counts['refused']} are rejected" in page(
        "docs/llama.md"
    )


def test_cases_of_extend_are_quoted_as_they_stand():
    """Counted line by line: right ones, and those that the search pair by pair wins."""
    text = (ROOT / "docs/extend_cases.md").read_text("utf-8")
    cells = [[cell.strip() for cell in line.strip("|").split("|")]
             for line in text.splitlines() if line.startswith("| ")][2:]  # fmt: skip
    right = sum(line[-1] == "" for line in cells)
    searched = sum(line[2] == line[3] == "pairs, searched" for line in cells)
    words = {6: "six", 7: "seven", 8: "eight"}
    said = page("docs/models.md")
    assert f"{right} of these {len(cells)} choices are right" in said
    assert f"In {words[searched]} of the {right} cases" in said
    assert "ten small models at four lengths each" in said
    assert len({line[0] for line in cells}) == 10
    assert len({line[1] for line in cells}) == 4


def test_folders_of_transformers_are_counted_once_each():
    numbers = re.search(
        r"has (\d+) model folders\. For (\d+) .*? For (\d+) folders, .*? rejects .*? (\d+) folders"
        r" .*? (\d+) folders have no positions",
        page("docs/models.md"),
    )
    assert numbers
    all_of_them, *parts = map(int, numbers.groups())
    assert sum(parts) == all_of_them


def test_folders_and_models_that_number_pictures_are_counted():
    said = page("docs/using.md")
    assert f"position ids of {len(RULES)} models of transformers" in said
    words = {8: "eight", 9: "nine", 10: "ten"}
    assert f"position ids of {words[len(DIFFUSION)]} models of diffusers" in said


def test_values_that_were_switched_for_smollm3_are_those_of_the_record():
    """The walk-through of a new family quotes the line of `switched.json`."""
    record = json.loads((ROOT / "tests/models/config/switched.json").read_text("utf-8"))
    found = Counter()
    for outcomes in record["smollm3"].values():
        found.update(outcomes)
    said = page("docs/families.md")
    assert f"of the {found.total()} values" in said
    assert (
        f"{found['equal']} equal, {found['refused']} refused by name, {found['impossible']} not"
        " built by transformers either" in said
    )


def test_configs_without_a_fault_are_those_that_are_checked():
    """`tests/data/rope_configs.json` also has frequencies of a model that has no config."""
    checked = [name for name in MODELS if name in TYPES]
    files = json.loads((ROOT / "tests/data/published_files.json").read_text("utf-8"))
    said = page("docs/check.md")
    assert f"None of the {len(checked)} published configs" in said
    assert f"none of the {len(files)} in `tests/data/published_files.json`, has an error" in said


def test_positions_that_16_bits_keep_apart_are_counted():
    said = page("docs/faults.md")
    of, kept = re.search(r"([\d,]+) positions become ([\d,]+) distinct", said).groups()
    rounded = torch.arange(int(of.replace(",", ""))).bfloat16()
    assert len(rounded.unique()) == int(kept.replace(",", ""))


def test_without_positions_equal_words_get_one_column_only_where_there_is_no_mask():
    """`attend` is run on two equal tokens; each page with this claim names the mask."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(1, 1, 5, 8, generator=generator)
    x[..., 3, :] = x[..., 1, :]
    nope = create("nope", 8, 1)
    out, causal = attend(x, x, x, nope), attend(x, x, x, nope, mask=masks.causal())
    torch.testing.assert_close(out[..., 3, :], out[..., 1, :])
    assert (causal[..., 3, :] - causal[..., 1, :]).abs().max() > 0.01
    assert "Without a mask, attention ignores word order" in page("README.md")
    assert "*Without positions or mask, both words" in page("README.md")
    glossary = page("docs/glossary.md")
    for begin in (
        "Two tokens of the same word",
        "If the tokens of a text are shuffled, the outputs",
    ):
        assert "without a mask" in glossary.partition(begin)[2][:150]


def test_fox_has_learned_a_window():
    """Read on, cropped and windowed, its outcomes are equal at each length with each seed."""
    assert "it has learned a window" in page("studies/fair-text/finding.md")
    whole, *others = (
        means("fair-text"),
        means("fair-text", "cropped"),
        means("fair-text", "windowed"),
    )
    places = [place for place in whole if place[1] == "fox"]
    assert len(places) > 40
    assert max(abs(whole[at] - other[at]) for at in places for other in others) < 1e-6


def test_t5_loses_more_the_longer_the_text_from_one_and_a_half_times_its_length():
    assert "From 1.5 L on T5 loses more the longer the text" in page("docs/paper/source.md")
    lost = [mean("fair-text", "t5", n) - mean("fair-text", "t5", n, cropped=True)
            for n in (96, 128, 256, 512)]  # fmt: skip
    assert lost == sorted(lost)


def test_rows_of_pairs_copy_are_as_far_trained_as_its_page_says():
    """At n = L no seed of three rows has 95 % right; at 1.2 L those copy most."""
    slow = ("none", "lowest-4", "lowest-8")
    text = page("studies/pairs-copy/finding.md")
    assert "No seed of the first three passes the gate" in text
    assert [name for name in re.findall(r"`([\w-]+)` (?:copies )?\{copy\.\S+ at 1\}", text)
            if name != "all"] == [*slow]  # fmt: skip
    assert max(max(by_seed("pairs-copy", name, 10)) for name in slow) < 0.95
    others = names("pairs-copy") - {*slow}
    assert min(mean("pairs-copy", name, 12) for name in slow) > max(
        mean("pairs-copy", name, 12) for name in others
    )
    assert max(names("pairs-copy"), key=lambda name: mean("pairs-copy", name, 16)) == "equal-4"


def test_nothing_is_said_of_processors_that_a_store_does_not_name():
    """Only a store of format 2 names the processors that trained its cells."""
    for store in sorted(STUDIES.glob("*/results.db")):
        study = store.parent.name
        named = "processor" in dict(rows(study, "SELECT name, digest FROM sources"))
        text = (store.parent / "finding.md").read_text("utf-8")
        assert (
            named
            or re.search("processor", text.replace("does not name the processors", "")) is None
        )


def test_hidden_words_are_told_by_rope_alone():
    """Learned rows help these models by under a tenth of a bit with every seed."""
    lengths = 16, 32
    rope, learned, none = (
        by_seed("masked", name, *lengths) for name in ("rope", "learned", "nope")
    )
    assert "learned rows give these models no more than no positions do" in page(
        "studies/masked/finding.md"
    )
    assert max(x - y for x, y in zip(rope, none, strict=True)) < -1
    assert min(x - y for x, y in zip(learned, none, strict=True)) > -0.1


def test_the_approaches_of_text_002_stand_beside_the_bits_of_the_guide():
    """The guide's table, which is made from the store, has the same numbers."""
    said = page("docs/sources.md")
    for name in ("RoPE", "ALiBi"):
        row = re.search(rf"\| {name} \| \S+ \| (\S+) \| (\S+) \|", page("docs/guide.md"))
        assert row
        assert f"needs {row[1]} bits at 2 L, and {row[2]} if it reads only the last L" in said


def test_the_picture_of_short_training_has_the_shares_of_its_study():
    said = page("examples/class/story.md")
    shares = [
        [round(100 * mean("shape-copy", name, n)) for n in (10, 12)]
        for name in ("nope", "sinusoidal", "alibi", "t5", "rope")
    ]
    trained, longer = zip(*shares, strict=True)
    assert f"{min(trained)} to {max(trained)} % of texts of 10 words" in said
    first, *others = [*map(str, longer)]
    assert f"{', '.join([first, *others[:-1]])} and {others[-1]} % of texts of 12 words" in said
    assert f"copy 12 words in {max(longer)} % of the texts at most, and with RoPE in none" in said
