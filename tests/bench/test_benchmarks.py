"""Benchmarks of few samples: what they compare is equal, and what is not equal is not timed."""

import math

import pytest
import torch

from posenc import attend
from posenc.bench import adapter, attention, embeddings, growth, rotation, run, training
from posenc.bench.record import Row, Table, Target
from posenc.bench.timing import Times

TINY = ("tiny", "float32", False, 1, 0.0, False)


@pytest.fixture(autouse=True)
def few_others(monkeypatch):
    """No other process, and of the libraries what the tests install."""
    monkeypatch.setattr("posenc.bench.memory.peaks", lambda *words: {})
    those = rotation._transformers, rotation._written_out
    monkeypatch.setattr("posenc.bench.rotation.LIBRARIES", those)


def test_ways_to_rotate_are_ratios_to_a_copy():
    table = rotation.benchmark(*TINY)
    names = [row.name for row in table.rows]
    assert {"a copy", "transformers", "posenc half: roll", "posenc interleaved: complex"} <= {
        *names
    }
    copy = table.row("a copy")
    for row in table.rows:
        assert row.ratio == pytest.approx(row.times.median / copy.times.median)
        assert row.error is None if row.name == "a copy" else row.error < 1e-5
    assert [row.ratio for row in table.rows] == sorted(row.ratio for row in table.rows)
    what = [target.what for target in table.targets]
    assert "posenc half, both at once / transformers" in what


def test_numba_has_a_table_of_its_own():
    table = rotation.fast("tiny", "float32", False, 1, 0.0)
    assert [row.name for row in table.rows] == ["a copy", "posenc half: blocks"]
    assert table.skipped == {"posenc half: numba": "not installed (numba)"}
    q = torch.empty(1, 2, 4096, 128)
    assert {"posenc half: blocks"} == {
        name for name in rotation.candidates(q, q, False)[0] if name.startswith("posenc half")
    }


def test_a_rotation_that_is_wrong_is_not_timed(monkeypatch):
    wrong = lambda x, by, layout, start=None: x * 1.001  # noqa: E731
    monkeypatch.setattr("posenc.bench.rotation.rotate", wrong)
    with pytest.raises(AssertionError, match="not close"):
        rotation.benchmark(*TINY)


def test_other_libraries_that_are_missing_are_named(monkeypatch):
    def missing(pos, dim, dtype):
        raise ImportError(name="some_library")

    missing.__name__ = "_some_library"
    monkeypatch.setattr("posenc.bench.rotation.LIBRARIES", (missing,))
    table = rotation.benchmark(*TINY)
    assert table.skipped == {"some-library": "not installed (some_library)"}
    assert not table.targets  # nobody to compare with


def test_attention_as_posenc_and_as_others_have_it_is_the_same():
    errors = attention.check.__wrapped__(96)
    assert {name.partition(" ")[0] for name in errors} == {"plain", "posenc", "usual"}
    assert max(errors.values()) < 1e-5


@pytest.mark.parametrize("kind", attention.KINDS)
def test_attention_of_each_kind(kind, monkeypatch):
    monkeypatch.setattr(attention, "check", lambda: dict.fromkeys(attention.cases(32), 0.0))
    table = attention.benchmark(32, kind, 1, 0.0)
    assert table.row(table.limit).ratio == 1
    least = {"window": {"posenc ALiBi", "posenc RoPE"}, "prefill": {"posenc ALiBi", "posenc T5"}}
    usual = {"posenc ALiBi", "posenc T5", "usual ALiBi"}
    assert least.get(kind, usual) <= {row.name for row in table.rows}


def test_every_target_of_decoding_windows_and_prefill_is_told(monkeypatch):
    monkeypatch.setattr(attention, "check", lambda: {})
    told = {
        kind: [t.what for t in attention.benchmark(tokens, kind, 1, 0.0).targets]
        for kind, tokens in (("decode", 1024), ("window", 300), ("prefill", 16))
    }
    assert told["decode"] == [f"{name}, time / plain" for name in attention.DECODED]
    assert told["window"] == ["NoPE / ALiBi, same window", "RoPE / ALiBi, same window"]
    assert told["prefill"] == [f"{name}, µs above plain" for name in ("NoPE", "ALiBi", "T5")]


def test_attention_is_measured_where_it_matters():
    assert attention.lengths("decode", run.LENGTHS)[-1] == 65_536
    assert attention.lengths("prefill", run.LENGTHS) == [16, 64, 128, 256]
    assert sum(len(attention.lengths(kind, run.LENGTHS[:2])) for kind in attention.KINDS) < 10


def test_a_training_step_has_the_same_loss_whoever_rotates(monkeypatch):
    monkeypatch.setattr(training, "TOKENS", 24)
    table = training.benchmark(1, 0.0)
    assert table.row("transformers RoPE, half").ratio > 0
    monkeypatch.setattr(training, "alibi_matrix", lambda q, k, v: v)
    with pytest.raises(AssertionError, match=r"usual ALiBi has a loss of .*, posenc of"):
        training.benchmark(1, 0.0)


def test_rows_that_are_added_are_held_against_the_formula(monkeypatch):
    monkeypatch.setattr(embeddings, "SHAPE", (1, 16, 8))
    assert embeddings.benchmark(1, 0.0).row("posenc, rows made anew").error < 1e-6
    monkeypatch.setattr(embeddings, "Sinusoidal", lambda dim: embeddings_of_another_base(dim))
    with pytest.raises(AssertionError, match="off"):
        embeddings.benchmark(1, 0.0)


def embeddings_of_another_base(dim):
    from posenc import Sinusoidal

    return Sinusoidal(dim, base=9_000.0)


def test_exponents_are_those_of_powers():
    for power in (0.5, 1, 2):
        times = {n: 3e-6 * n**power for n in (256, 512, 4096)}
        found = growth.fitted("rotation", "made up", times)
        assert (found.exponent, found.last) == (pytest.approx(power), pytest.approx(power))
    linear_then_quadratic = growth.fitted("", "", {1: 1.0, 2: 2.0, 4: 8.0})
    assert linear_then_quadratic.last == pytest.approx(2)
    assert 1 < linear_then_quadratic.exponent < 2


def test_growth_of_the_rotation_goes_to_the_longest():
    found = growth.rotations(1, 0.0, longest=512)
    assert {one.name for one in found} >= {"a copy", "posenc half", "posenc interleaved"}
    assert all(one.tokens == [256, 512] and math.isfinite(one.exponent) for one in found)


def test_a_target_is_met_or_missed():
    assert Target("T5, time / plain", 1.3, 1.3).met
    assert not Target("T5, time / plain", 1.31, 1.3).met


def test_a_row_is_found_by_its_name_or_how_it_begins():
    times = Times(1.0, 1.0, 3, 0)
    table = Table("", "", "", [Row("ab", times, 1.0), Row("a", times, 2.0)], {}, "warm", 2)
    assert [table.row(name).ratio for name in ("a", "ab")] == [2.0, 1.0]
    assert table.row("b") is None
    assert torch.tensor([row.ours for row in table.rows]).sum() == 0


def test_a_run_of_one_part(monkeypatch):
    monkeypatch.setattr(run, "QUICK", run.Effort(1, 0.0, (256,), 512, (), False, ("tiny",)))
    doing = []
    found = run.benchmark(["rotation"], quick=True, progress=lambda *words: doing.append(words))
    assert len(found.tables) == 4
    assert {table.part for table in found.tables} == {"rotation"}
    assert [done for _, done, _ in doing] == list(range(6))
    assert found.libraries.keys() >= {"transformers"}
    assert found.provenance.seed == 0
    tree = found.to_json()
    assert tree["tables"][0]["targets"][0]["met"] in (True, False)


def test_a_part_that_there_is_not():
    with pytest.raises(LookupError, match=r"no part 'rotating': name some of rotation, emb"):
        run.benchmark(["rotating"])


def test_a_model_with_an_encoding_plugged_in_is_beside_itself():
    for kind in adapter.MOST:
        table = adapter.benchmark(kind, adapter.Size(1, 16), 1, 0.0)
        assert [row.name for row in table.rows if not row.ours] == ["the model's own"]
        assert all(row.error < 1e-4 for row in table.rows)
        assert len(table.targets) == 4
        assert f"ALiBi, {kind} / the model's own" in [target.what for target in table.targets]


def test_a_model_that_decodes_other_logits_is_not_timed(monkeypatch):
    from posenc.models.hf import hooks

    wrong = lambda *args, **kwargs: attend(*args, **kwargs) * 1.01 ** args[0].shape[2]  # noqa: E731
    monkeypatch.setattr(hooks, "attend", wrong)
    with pytest.raises(AssertionError, match=r"interleaved is .* off"):
        adapter.benchmark("prefill", adapter.Size(1, 16), 1, 0.0)
