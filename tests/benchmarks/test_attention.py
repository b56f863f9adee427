"""The ways to attend, few samples: compared with the definition of attention."""

import pytest

from benchmarks import attention, run

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("few_others")]


def test_attention_as_posenc_and_as_others_have_it_is_the_same():
    errors = attention.reference_errors.__wrapped__(96)
    assert {name.partition(" ")[0] for name in errors} == {"plain", "posenc", "materialised"}
    assert max(errors.values()) < 1e-5


@pytest.mark.parametrize("kind", attention.KINDS)
def test_attention_of_each_kind(kind, monkeypatch):
    monkeypatch.setattr(
        attention, "reference_errors", lambda: dict.fromkeys(attention.cases(32), 0.0)
    )
    table = attention.time_attention(32, kind, 1, 0.0)
    assert table.row(table.limit).ratio == 1
    least = {"window": {"posenc ALiBi", "posenc RoPE"}, "prefill": {"posenc ALiBi", "posenc T5"}}
    usual = {"posenc ALiBi", "posenc T5", "materialised ALiBi"}
    assert least.get(kind, usual) <= {row.name for row in table.rows}


def test_every_target_of_decoding_windows_and_prefill_is_told(monkeypatch):
    monkeypatch.setattr(attention, "reference_errors", lambda: {})
    told = {
        kind: [t.what for t in attention.time_attention(tokens, kind, 1, 0.0).targets]
        for kind, tokens in (("decode", 256), ("window", 300), ("prefill", 16))
    }
    soon = [name for name in attention.DECODED if name not in attention.BY_CONTENT]
    soon += attention.HELD_NAMES
    assert told["decode"] == [f"{name}, time / plain" for name in soon]
    assert told["window"] == ["NoPE / ALiBi, same window", "RoPE / ALiBi, same window"]
    assert told["prefill"] == [f"{name}, µs above plain" for name in ("NoPE", "ALiBi", "T5")]


def test_attention_is_measured_where_it_matters():
    assert attention.lengths("decode", run.LENGTHS)[:: len(run.LENGTHS) + 1] == [256, 65_536]
    assert attention.lengths("prefill", run.LENGTHS) == [16, 64, 128, 256]
    assert sum(len(attention.lengths(kind, run.QUICK.tokens)) for kind in attention.KINDS) < 10


@pytest.mark.parametrize("kind", attention.KINDS)
def test_the_peak_of_each_way_is_measured_after_a_shorter_call(kind):
    peaks = attention.peaks("64", kind)
    assert "posenc ALiBi" in peaks
    assert min(peaks.values()) >= 0
