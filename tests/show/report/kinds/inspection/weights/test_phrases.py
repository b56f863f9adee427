"""Sentences on weights that are made up, against the numbers in them."""

from dataclasses import replace

from weight_files import sentences


def test_each_kind_of_tensor_has_its_sentences(weighed):
    facts = [
        ["wpe.weight: 8 rows of 4, learned", "0.90 0.80 0.70 0.10", "about 3.1 directions"],
        ["wpe.weight: rows 6 … 7", "random", "training"],
        ["bias.weight: T5 bias, 7 bidirectional buckets up to 4 tokens", "1 of 2 heads"],
        ["bias.weight: in head 0 the last bucket, from 3 tokens on", "-3.0", "+1.0"],
        ["layers.….emb_rel_k: vectors for up to 1 tokens", "0.38 0.38", "longest at 0 0"],
        ["layers 0–2", "pair 0 (6.283 tokens a turn)", "3 times", "pair 1 (62.83 tokens a turn)"],
        ["layout 'half'", "3 times", "128 pairs, 'half' t = 9.0, 'interleaved' t = 1.0"],
        ["layout 'interleaved'", "wrongly"],
        ["odd.weight", "not finite"],
        ["big.weight: it is too large"],
    ]
    for sentence, expected in zip(sentences(weighed), facts, strict=True):
        assert [fact for fact in expected if fact not in sentence] == []


def test_weak_evidence_speaks_for_neither_layout(weighed):
    weak = replace(weighed.evidence, t={"half": 3.9, "interleaved": 0.0})
    (said,) = [line for line in sentences(replace(weighed, evidence=weak)) if "do not show" in line]
    assert said.endswith("required: t = 4, 64 pairs or more)")


def test_of_many_tensors_that_are_not_measured_eight_are_named(weighed):
    many = {f"t{n}": "it is too large" for n in range(1010)}
    assert sentences(replace(weighed, skipped=many))[-2:] == [
        "t7: it is too large",
        "1,002 more tensors are not measured",
    ]


def test_nothing_recognised_is_said_with_the_first_names(weighed):
    empty = dict(tables=[], biases=[], relative=[], bands=[], evidence=None, broken=[], skipped={})
    (said,) = sentences(replace(weighed, **empty))
    assert said.endswith("in 12 tensors (a, b, c, …)")


def test_a_seam_is_told_with_the_numbers_beside_it(weighed):
    """Norms 0.42 and 0.48 on both sides of row 128, as MiniLM has them."""
    (table,) = weighed.tables
    likeness = [0.85] * 511
    likeness[127] = 0.55
    learned = replace(table.learned, norms=[0.42] * 128 + [0.48] * 384, likeness=likeness)
    learned = replace(learned, trained=512, untrained="", seam=128)
    said = sentences(replace(weighed, tables=[replace(table, rows=512, learned=learned)]))[1]
    for fact in ("wpe.weight", "row 128", "0.42 to 0.48", "0.55", "0.85", "rows 128 … 511"):
        assert fact in said
