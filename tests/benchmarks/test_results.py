"""Targets and rows of results that are made up."""

import re
from dataclasses import fields
from pathlib import Path

import torch

from benchmarks import run
from benchmarks.results import BenchTable, Target, TimedRow
from benchmarks.timing import Times


def test_a_target_is_met_or_missed():
    assert Target("T5, time / plain", 1.3, 1.3).met
    assert not Target("T5, time / plain", 1.31, 1.3).met


def test_a_row_is_found_by_its_name_or_how_it_begins():
    times = Times(1.0, 1.0, 3, 0)
    table = BenchTable(
        "", "", "", [TimedRow("ab", times, 1.0), TimedRow("a", times, 2.0)], {}, "warm", 2
    )
    assert [table.row(name).ratio for name in ("a", "ab")] == [2.0, 1.0]
    assert table.row("b") is None
    assert torch.tensor([row.ours for row in table.rows]).sum() == 0


def test_the_keys_of_a_run_are_documented():
    page = (Path(__file__).parents[2] / "benchmarks/README.md").read_text("utf-8")
    section = page.partition("## results.json")[2]
    assert section.startswith(f", schema {run.SCHEMA}\n")
    kinds = run.Benchmark, BenchTable, TimedRow, Times
    keys = {field.name for kind in kinds for field in fields(kind)}
    assert keys <= {*re.findall(r"`([a-z_]+)`", section)}
