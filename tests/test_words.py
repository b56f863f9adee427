"""The patterns of tools/words.toml on sentences that were rewritten here: before and after."""

import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, "tools")
import words

# The kind of text, the sentence as it was, and as it was rewritten
PAIRS = [
    (
        "summary",
        "One call of attention: what it was given, then what the hooks made of it.",
        "The arguments of one attention call. Later steps replace q, k, v and bias with the "
        "encoded ones.",
    ),
    (
        "page",
        "Attention cannot tell word order; a positional encoding tells it.",
        "Attention ignores word order unless a positional encoding adds it.",
    ),
    (
        "summary",
        "The parts of torch without a public name, each with what serves where a torch has none.",
        "Private torch APIs, each with a fallback for versions that lack it.",
    ),
    (
        "comment",
        "Leave a function out of what an old torch compiles, which dies within it: it runs as it "
        "is.",
        "Disable torch.compile for this function before torch 2.13, whose compiler crashes on it.",
    ),
    (
        "summary",
        "Running sums of what the input of a layer says, over the tokens as they are read.",
        "Cumulative sums over tokens of values computed from the layer input.",
    ),
    (
        "summary",
        "Names that arguments have in other libraries, each answered with what posenc calls it.",
        "Map argument names of other libraries to ours, for error messages.",
    ),
    ("comment", "every tensor stands for others of its kind", "tensors are symbolic"),
    (
        "summary",
        "So many threads of torch for a while, and those that the caller had afterwards.",
        "Set torch's thread count temporarily.",
    ),
    (
        "summary",
        "Add what each later query would else compute of all keys again; a cache asks for it.",
        "Precompute per-key values that every later query needs; called by `Cache`.",
    ),
    (
        "docstring",
        "where the bias is nothing but that; read out of one vector a head",
        "set only if the bias depends on the offset alone; stored as one vector per head",
    ),
    (
        "summary",
        "A sum of ReLUs of one number, looked up as the straight lines that it is made of.",
        "Evaluate a one-input ReLU network as a piecewise linear function.",
    ),
    (
        "docstring",
        "`start` is how many tokens a key cache already holds.",
        "`start`: number of tokens already in the cache.",
    ),
    (
        "message",
        "`heads` must divide `width`=512, got 7: so do those of q.",
        "`width` (512) must be divisible by `heads`, got 7.",
    ),
    (
        "message",
        "`x` must be embeddings, real numbers, got int64: `pos` is second.",
        "`x` must be floating point, got int64. The argument order is (x, pos).",
    ),
    (
        "message",
        "reads the input of the layer, and `at` has not seen it",
        "needs the layer input. Pass `at = encoding.on_hidden(x, encoding.prepare(pos))`.",
    ),
    (
        "message",
        "leave it out, for attention that is fast makes no weights",
        "not supported: fused attention does not return weights",
    ),
    (
        "message",
        "5 queries and 7 keys: where do they stand?",
        "5 queries but 7 keys. Pass their positions as `at` and `k_at`.",
    ),
    (
        "summary",
        "Set keys and values that nobody sees to 0 where they count.",
        "Zero fully masked keys and values, so that NaN there cannot reach the output or its "
        "gradient.",
    ),
    (
        "docstring",
        "Ways that go by a strip of pairs never touch a key that nobody sees.",
        "Banded kernels never read fully masked keys.",
    ),
    (
        "summary",
        'Why "auto" passes over it, though it may serve; "" where it does not.',
        'Reason that "auto" skips this path although it could run it; "" if it does not.',
    ),
    (
        "summary",
        "Documents: each attends to itself, by whichever path serves it.",
        "Run attention separately for each packed document.",
    ),
    (
        "docstring",
        "values as they are weighed: nothing is turned twice",
        "values after `on_values`, so rotations are applied once",
    ),
    (
        "docstring",
        "may add keys as these tokens left them",
        "may add keys transformed by the tokens read since",
    ),
    (
        "message",
        "`pos` must say where these tokens stand, and none of them is the next",
        '`pos` is required. Positions with several axes have no "next" one.',
    ),
    (
        "comment",
        "Through `data`, which counts no versions: graphs may have saved what came before",
        "Write through `.data` to skip autograd's version counter; saved tensors end before this "
        "slice.",
    ),
    (
        "comment",
        "found with so many keys or with more",
        "double the number of near keys until all far counts are saturated",
    ),
    (
        "summary",
        'Why the bias is not one number for each key; "" where it is.',
        'Return the reason why this bias cannot be written as one number per key, or "".',
    ),
    (
        "comment",
        "up to these it is the number of calls that counts",
        "below this, call overhead dominates",
    ),
    (
        "summary",
        "Where each head has positions of its own, it gives what it gives if all have these.",
        "Per-head positions give the same result as running each head alone.",
    ),
    (
        "docstring",
        "the model as it was reads the same tokens, each told by the trained length alone",
        "baseline: the unmodified model with a sliding window of the trained length",
    ),
    (
        "summary",
        "What of a YaRN is not as llama.cpp takes it",
        "YaRN settings that differ from llama.cpp's defaults",
    ),
    (
        "comment",
        "why no fault may have been missed only if more were known",
        "checks that could not be made, and why",
    ),
    (
        "message",
        "runs from the fastest pair to the slowest, and but one turns",
        "needs at least two rotated pairs, got one",
    ),
    (
        "docstring",
        "another than the CPU is a source of the outcomes, by its name.",
        'a device other than "cpu" is recorded in the store as part of the environment',
    ),
    (
        "summary",
        "Test the lengths that a study was begun with, whatever a later version of its task tests.",
        "Keep the test lengths of the first run, even if the task's defaults have changed.",
    ),
    (
        "comment",
        "FIRE begins with its length; xPos fades over half of it",
        "FIRE's initial length is the trained length; xPos decays over half of it",
    ),
    (
        "comment",
        "A file in the stead of a lock would outlive a holder that is killed",
        "A soft lock file would survive a killed process.",
    ),
    (
        "comment",
        "rows of every study; crop is read of them",
        "rows that every study includes; the cropped baseline is computed from them",
    ),
    ("comment", "What else the outcomes are asked.", "Optional analyses of a study."),
    (
        "summary",
        "The commands of `posenc`, each thin, over plain functions: this begins the one that is "
        "asked for.",
        "Entry point of the command line.",
    ),
    (
        "page",
        "What PI pays for it no dial shows: neighbours stand 16 times closer.",
        "PI has a price that the dials do not show: neighbouring tokens end up 16 times closer.",
    ),
    (
        "page",
        "After these steps rows tell them no more than none do.",
        "After these steps the rows carry no information.",
    ),
    (
        "page",
        "Six runs ask too much, so that no plan ranks them.",
        "Six runs are too few to rank them.",
    ),
    ("page", "The rows foretell the loss.", "The rows predict the loss."),
    (
        "summary",
        "Check a model: the word of its weights.",
        "Check a model against its own weights.",
    ),
    (
        "message",
        "`p` is the share of pairs that turn, 0 … 1, got 2.",
        "`p` must be the share of rotated pairs, from 0 to 1, got 2.",
    ),
    (
        "message",
        "cells.db exists already: name a new file.",
        "cells.db already exists. Name a new file.",
    ),
    ("message", "x.db is no store of a study", "x.db is not a store of a study"),
]


@pytest.mark.parametrize(("kind", "before", "after"), PAIRS, ids=[pair[1][:30] for pair in PAIRS])
def test_a_sentence_is_found_until_it_is_rewritten(kind: str, before: str, after: str):
    assert words.hits(words.without_code(before), kind)
    assert not [hit[1] for hit in words.hits(words.without_code(after), kind)]


@pytest.mark.parametrize(
    "phrase",
    [
        "A query sees a key that is not behind it.",
        "Return the first match, or None if nothing else is found.",
        "Decoding takes 3 milliseconds.",
        "One bias for each head, for which the caller pays.",
        "There is no bias to add.",
        "`x if y else z`",
    ],
)
def test_phrases_of_the_field_are_no_hits(phrase: str):
    for kind in sorted(words.KINDS):
        assert not words.hits(words.without_code(phrase), kind)


SOURCE = '''"""Where it is."""
import warnings


def function(x):  # so many of them
    """Return `x`.

    A second paragraph, with one
    else.

    >>> "so many words as these are in an example"
    """
    # A comment over two
    # lines, one else
    warnings.warn(f"got {x}: pass another")
    if x:
        raise ValueError("in the first part " "so many of these")
    return ["there are so many words in here", "else"]
'''


def test_hits_in_python_have_the_line_and_the_kind(tmp_path: Path):
    """Each place of a small file, counted by hand."""
    path = tmp_path / "file.py"
    path.write_text(SOURCE, encoding="utf-8")
    found = sorted((hit.line, hit.rule.name[0]) for hit in words.of_file(path))
    # A warning breaks two patterns of rule 5
    assert found == [
        (1, "1"),
        (5, "3"),
        (9, "3"),
        (14, "3"),
        (15, "5"),
        (15, "5"),
        (17, "3"),
        (18, "3"),
    ]


@pytest.mark.parametrize(
    ("name", "text", "line"),
    [
        ("a.md", "# So many\n\n`so many`\n\n```\nso many\n```\n\nHere are so\nmany words.\n", 9),
        ("a.md", "| name | so many |\n| --- | --- |\n", 1),
        ("a.html", "<p title='so many'>one</p>\n<script>so many</script>\n<p>so many</p>\n", 3),
        ("a.js", "const so = 'one';\n/**\n * Draw so many.\n */\n", 3),
        ("a.js", 'const a = "so many";\nconst b = `there are so many of ${a}`;\n', 2),
    ],
)
def test_hits_in_pages_have_the_line(tmp_path: Path, name: str, text: str, line: int):
    """Headings, code, comments and tags hold the words too, and are left out."""
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    assert [hit.line for hit in words.of_file(path)] == [line]


def test_hits_are_printed_and_fail(tmp_path: Path, capsys):
    path = tmp_path / "page.md"
    path.write_text("There are so many threads.\n", encoding="utf-8")
    assert words.main([str(path)]) == 1
    assert "page.md:1: 'so many'" in capsys.readouterr().out
    path.write_text("There are several threads.\n", encoding="utf-8")
    assert words.main([str(path)]) == 0


@pytest.mark.slow
def test_the_repository_has_no_hits():
    """The command that `make lint` runs."""
    ran = subprocess.run([sys.executable, "tools/words.py"], capture_output=True, text=True)
    assert (ran.returncode, ran.stdout) == (0, "")
