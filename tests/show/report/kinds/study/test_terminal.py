"""Tables of studies at three widths of a terminal, against their rows."""

import io
import json
import re
from dataclasses import replace
from statistics import fmean
from struct import unpack

import pytest
from made_studies import plan, study
from rich.console import Console
from stored_outcomes import STUDIES, rows

from posenc.lab.study.analysis import analyse
from posenc.lab.study.store import read
from posenc.show.report.kinds.study import terminal


def drawn(result, width):
    console = Console(file=io.StringIO(), width=width)
    terminal.print_analysis(result, console)
    return console.file.getvalue()


@pytest.fixture(scope="module")
def weak():
    """Copy and a language model by three seeds, which rank nothing; ALiBi learned too little."""
    contrasts = [["nope", "rope"], ["t5", "rope"], [["nope", "alibi"], ["rope", "sinusoidal"]]]
    planned = plan(tasks=("copy", "language"), seeds=3, contrast=contrasts)
    result = analyse(study(planned, failures=[("sinusoidal", 2)]))
    rows = [
        replace(row, undertrained=row.seeds if row.encoding == "alibi" else [])
        for row in result.rows
    ]
    return replace(result, rows=rows)


def test_escape_codes_of_a_store_stay_out_of_the_terminal(weak):
    said = "a\x1b[31mred"
    made = replace(weak, hypothesis=said, pilots=[said], deviations=[said])
    text = drawn(made, 200)
    assert "\x1b" not in text
    assert text.count(r"a\x1b[31mred") == 3


@pytest.mark.parametrize("width", [80, 119, 120, 140])
def test_nothing_is_cut_off(weak, width):
    registered, text = drawn(weak, width).split("\n", 1)
    assert registered == f"registered: sha256 {weak.registered}"  # whole, to be copied
    assert "…" not in text.replace(" … ", " ").replace("L…2L", "")  # intervals are written so
    assert max(map(len, text.splitlines())) <= width
    assert text.count("undertrained") == 2
    assert text.count("mean loss 3 of 16 is nan") in (2, 3)  # of the cropped row too, beside it


def test_cropping_to_l_stands_among_the_rows_of_a_text(weak):
    (cropped,) = [row for row in weak.baselines if row.encoding == "rope cropped"]
    text = drawn(weak, 140).partition("language")[2]
    (line,) = [line for line in text.splitlines() if "rope cropped" in line]
    assert f" {cropped.value.value:.3f} " in line


def test_where_there_is_no_room_notes_stand_below_and_alike_ones_once(weak):
    narrow = drawn(weak, 80).splitlines()
    assert narrow.count("alibi: undertrained") == 2  # below the table of each task
    assert [line for line in drawn(weak, 140).splitlines() if "3  undertrained" in line]
    last = max(n for n, line in enumerate(narrow) if "nope − rope " in line)
    assert any("seeds: no ranking claims" in line for line in narrow[last:])
    assert sum("no ranking claims" in line for line in narrow) < len(weak.contrasts)


@pytest.mark.repository
@pytest.mark.parametrize("width", [80, 140])
def test_bits_by_position_within_l_are_printed(width):
    """A store read by SQL: RoPE after 8 to 11 letters and after 48 to 63; copying has none."""
    texts = [
        unpack("<64f", data[:256])
        for cell, data in rows(
            "shape-text",
            "SELECT settings, data FROM cells JOIN outcomes USING (digest)"
            " WHERE protocol = 'position'",
        )
        if json.loads(cell)["encoding"] == "rope"
    ]
    bits = [fmean(at) for at in zip(*texts, strict=True)]
    text = drawn(analyse(read(STUDIES / "shape-text")), width).partition("bits within L")[2]
    (line,) = re.findall(r"^rope +(.*)$", text.partition("contrasts")[0], re.M)
    printed = line.split()
    assert len(printed) == 10
    assert printed[4] == f"{fmean(bits[8:12]):.3f}"
    assert printed[-1] == f"{fmean(bits[48:]):.3f}"
    assert "bits within L" not in drawn(analyse(read(STUDIES / "shape-copy")), width)
