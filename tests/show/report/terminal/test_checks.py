"""Against made checks: the verdict comes first, then the gravest, and losses in order."""

from io import StringIO

from rich.console import Console

from posenc.models.check.differences import Difference
from posenc.models.check.faults import RULES, Fault
from posenc.models.check.loss import Trial
from posenc.models.check.verdict import Check
from posenc.models.prove import Proof, Way
from posenc.show.report.terminal import checks


def printed(show, *words):
    console = Console(file=StringIO(), width=120)
    show(*words, console)
    return console.file.getvalue()


def test_the_verdict_and_the_gravest_come_first():
    trials = (
        Trial("as written", "as written", 3.0, 16),
        Trial("base", "base 10,000", 2.5, 16, -0.5, -0.6, -0.4),
        Trial("layout", "layout half", 7.0, 4, 4.0, 3.0, 5.0),
    )
    findings = (
        Fault(RULES["remark"], "a note", "config.json"),
        Fault(RULES["weights-disagree"], "bad", "x"),
    )
    said = printed(
        checks.print_check, Check("m", "config.json", findings, trials, (), ("the rules",))
    )
    order = ["m: fault", "checked: the rules", "✗ weights-disagree: bad", "· remark: a note"]
    order += ["base 10,000", "as written", "layout half"]
    places = [said.rindex(words) for words in order]
    assert places == sorted(places)
    assert "-0.500 ± 0.100" in said


def test_differences_are_lines_and_none_is_said():
    assert "same positional settings" in printed(checks.print_differences, [], ("a", "b"))
    difference = Difference("window", (0, 1, 3), "none", "512")
    assert "layers 0–1, 3: window: none ≠ 512" in printed(
        checks.print_differences, [difference], ("a", "b")
    )


def test_a_proof_says_what_is_chosen_or_that_nothing_works():
    way = Way("yarn", 1.5, 1.4, 1.5, [], 1.0, 0.5, {})
    said = printed(checks.print_proof, Proof(32, 64, 2.0, [way], 0, ["a note"], {}))
    for words in ("bits to 64", "100%", "sliding, 32 at a time", "note: a note", "chosen", "yarn"):
        assert words in said
    said = printed(checks.print_proof, Proof(32, 64, 1.0, [way], 0, [], {}))
    assert "No method helps: beyond 32 tokens the chosen method, yarn," in said


def test_keys_of_gguf_are_lines(capsys):
    checks.print_keys({"llama.rope.scaling.type": "yarn"})
    assert capsys.readouterr().out == "llama.rope.scaling.type = yarn\n"
