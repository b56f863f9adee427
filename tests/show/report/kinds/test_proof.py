"""A page and a figure of a proof that is made up, against its numbers."""

from dataclasses import replace

from posenc.models.prove import Proof, Way
from posenc.show.report import page
from posenc.show.report.kinds import kind_of, proof
from posenc.support.provenance import since

YARN = Way("yarn", 2.0, 1.9, 2.1, [(64, 1.9), (128, 2.1)], 1.0, 0.5, {})
OWN = Way("as it is", 4.0, 1.8, 4.2, [(64, 1.8), (128, 4.2)], 0.0, 0.0, {})
PROOF = Proof(64, 128, 2.5, [YARN, OWN], 2**30, ["a <note>"], {}, [], "model", since(0))


def test_a_proof_is_a_kind_of_result():
    assert kind_of(PROOF) is proof


def test_each_way_is_a_line_and_sliding_is_level():
    (panel,) = proof.by_position(PROOF).panels
    yarn, own, sliding, trained = panel.marks
    assert (yarn.x, yarn.y, yarn.name) == ([64, 128], [1.9, 2.1], "yarn, whole")
    assert own.y == [1.8, 4.2]
    assert (sliding.x, sliding.y) == ([64, 128], [2.5, 2.5])
    assert trained.at == 64


def test_the_headline_says_what_is_chosen_and_by_how_much():
    best = "yarn reads 128 tokens best: 2.100 bits a token beyond 64, 0.400 fewer than the last 64"
    assert best in proof.headline(PROOF)
    assert "No method helps at 128 tokens" in proof.headline(replace(PROOF, sliding=2.0))
    own = replace(PROOF, ways=[replace(OWN, far=2.0)])
    assert "Of the methods tried, the unmodified model reads 128 tokens best" in proof.headline(own)


def test_the_page_holds_every_way_and_escapes_notes():
    html = page.render(PROOF)
    for said in ("<h1>model, read to 128 tokens", ">yarn<", "4.200", "100 %", "1.00 GiB"):
        assert said in html
    assert "a &lt;note&gt;" in html
