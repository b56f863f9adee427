"""What pages say of studies: by whom it is read, what holds of all, and what was taken back."""

import re

import pytest
from stored_outcomes import (
    STUDIES,
    labelled,
    rows,
)

pytestmark = pytest.mark.repository
ROOT = STUDIES.parent
KINDS = ("*.py", "*.js", "*.html", "*.json", "*.md", "*.ipynb")

# what was said, and what the stores hold instead; as it was written, so that it does not come back
WITHDRAWN = {
    r"fast pairs (that )?stand in the way": "at 1.6 L four pairs of the fastest speed copy most",
    r"all must be slow": "slow was not told from still, and the order at 1.6 L is another",
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
    r"say only what holds": "it holds at a length, a rate and some steps",
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
}


def pages():
    for folder in ("docs", "studies", "examples", "src/posenc", "tools"):
        for kind in KINDS:
            yield from (ROOT / folder).rglob(kind)
    yield from ROOT.glob("*.md")


@pytest.fixture(scope="module")
def said():
    """Every page, each on one line and without marks of emphasis."""
    return {path: re.sub(r"[*`\s\"#]+", " ", path.read_text("utf-8")) for path in pages()}


@pytest.mark.parametrize("claim", WITHDRAWN)
def test_what_was_taken_back_does_not_come_back(said, claim):
    found = [path for path, text in said.items() if re.search(claim, text, re.IGNORECASE)]
    assert not found, f"{found} said it again: {WITHDRAWN[claim]}."


def test_pages_of_all_kinds_are_looked_through(said):
    names = {str(path.relative_to(ROOT)) for path in said}
    assert names >= {
        "README.md", "CHANGELOG.md", "studies/README.md", "studies/pairs-copy/finding.md",
        "docs/results.md", "src/posenc/show/report/guide.py",
        "src/posenc/show/explorer/page/tour.js",
        "src/posenc/show/report/kinds/study.html", "src/posenc/core/findings.json",
    }  # fmt: skip


def test_hypotheses_stand_in_plans_and_where_they_are_called_so(said):
    """A hypothesis is no headline: on the page of its study each is said to be one."""
    for plan in STUDIES.glob("*/plan.toml"):
        (hypothesis,) = re.findall(r'^hypothesis = "(.*)"$', plan.read_text(), re.M)
        text = (plan.parent / "README.md").read_text()
        assert (
            text.count(hypothesis) == text.count(f"as registered, no finding: *{hypothesis}*") > 0
        )


@pytest.mark.parametrize("study", sorted(path.parent.name for path in STUDIES.glob("*/results.db")))
def test_all_rows_of_a_study_share_one_learning_rate_and_schedule(study):
    """So that "at one learning rate" may be said of all; where rates are chosen, all of a row."""
    chosen = "\nrates = " in f"\n{rows(study, 'SELECT text FROM plans')[-1][0]}"
    cells = [
        (f"{cell['task']} {label}" * chosen, cell["profile"]["rate"], cell["profile"]["steps"])
        for label, cell in labelled(study)
    ]
    assert len({steps for *_, steps in cells}) == 1
    assert len({(label, rate) for label, rate, _ in cells}) == len({label for label, *_ in cells})


COMPARISONS = {  # what is said to be more or less than another, where, and the test that reads it
    ("source.md", "short texts better than long ones"):
        "test_a_row_without_positions_passes_the_test_of_aliasing",
    ("source.md", "makes all worse"): "test_what_it_says_of_bands_is_what_each_swap_came_to",
    ("pairs-text/finding.md", "cropping is better than reading on"):
        "test_cropping_needs_fewer_bits_in_every_row_at_every_length_with_every_seed",
    ("pairs-text/finding.md", "slowing the fastest band makes all worse"):
        "test_what_it_says_of_bands_is_what_each_swap_came_to",
    ("shape-text/finding.md", "needs fewer bits than one that reads all"):
        "test_cropping_needs_fewer_bits_in_every_row_at_every_length_with_every_seed",
    ("shape-text/finding.md", "needs fewer than RoPE"):
        "test_each_contrast_is_what_the_store_holds",
    ("shape-text/finding.md", "fewer bits than the five rows"):
        "test_cropping_needs_fewer_bits_in_every_row_at_every_length_with_every_seed",
    ("pairs-text/finding.md", "last L tokens alone needs fewer bits"):
        "test_cropping_needs_fewer_bits_in_every_row_at_every_length_with_every_seed",
    ("properties-text/finding.md", "every row needs fewer bits at 2 L when it is cropped"):
        "test_cropping_needs_fewer_bits_with_every_encoding_but_fox",
    ("scenes.js", "fewer is better"): "test_reading_on_stands_beside_cropping",
    ("scenes.js", "seeds are better off with less"): "test_reading_on_stands_beside_cropping",
}  # fmt: skip
SPOKEN = (
    r"\b(better|worse|beats?|beaten|outperforms?|(fewer|more) (bits|texts|words) than"
    r"|(fewer|more|less) than (any|all|every)|needs? fewer|first of all)\b"
)
# as a question or a prediction, which is no finding
ASKED = (
    r"copied better|copies? (a text|longer)|[Dd]o(es a)? decaying bias"
    r"|hether rows that read on|[Dd]oes a row that reads on"
    r"|better where n − P"
)


@pytest.mark.parametrize(
    "page",
    ["README.md", "docs/glossary.md", "docs/paper/source.md", "CHANGELOG.md",
     "docs/speed.md", "docs/sources.md", "docs/properties.md", "docs/studies.md", "docs/guide.md",
     "studies/board/v1.md", "src/posenc/show/report/guide.py", "src/posenc/core/glossary.py",
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
