"""The page: complete in itself, escaped, and never in the place of anything else."""

import dataclasses
import json
import re

import pytest

from posenc.report import figures, page


@pytest.fixture(scope="module")
def html(everything):
    return page.render(everything)


def test_asks_for_nothing_from_outside(html):
    markup = re.sub(r"<script>.*?</script>", "", html, flags=re.DOTALL)
    assert not re.search(r"<(link|img|iframe|script[^>]* src)", markup)
    assert "default-src 'none'" in markup
    assert html.count("plotly.js v") == 1  # once for all figures


def test_shows_every_encoding_property_and_witness(html, everything):
    for measured in everything.encodings:
        assert f'id="{measured.slug}"' in html
        assert html.count(f">{measured.name}<") >= 3
    assert "first rises at offset" in html
    assert "@misc{vaswani2017attention" in html


def test_what_a_user_named_is_escaped(everything):
    evil = dataclasses.replace(
        everything, source="<img src=x onerror=alert(1)>", sentence="</script><script>alert(1)"
    )
    html = page.render(evil)
    assert "<img src=x" not in html
    assert "&lt;img src=x" in html
    assert "</script><script>alert" not in html


def test_a_figure_cannot_end_its_script():
    assert "<" not in page._embedded('{"name": "</script><script>\u2028&"}')
    assert json.loads(page._embedded('{"name": "</b>&"}')) == {"name": "</b>&"}


def test_figures_show_the_numbers_of_the_result(everything):
    drawn = figures.costs(everything).panels[0].marks
    assert drawn[0].x == [m.cost_ratio["forward"] for m in everything.encodings]
    assert figures.order(everything).panels[0].marks[0].x[0] == pytest.approx(0, abs=1e-3)
    panels = [m for m in everything.encodings if m.rows]
    assert [m.slug for m in panels][:2] == ["integer", "normalized"]
    drawn = figures.rows(everything)
    assert drawn is not None
    assert drawn.panels[0].marks[0].z[2][5] == panels[0].rows[5][2] == 5  # channel 2 of position 5


def test_writes_both_files_and_may_write_them_again(everything, tmp_path):
    for _ in range(2):
        page.reserve(tmp_path / "new" / "report")
        page.write(everything, tmp_path / "new" / "report")
    held = sorted(path.name for path in (tmp_path / "new" / "report").iterdir())
    assert held == ["index.html", "results.json"]
    numbers = json.loads((tmp_path / "new" / "report" / "results.json").read_text())
    assert numbers == json.loads(json.dumps(everything.to_json()))


@pytest.mark.parametrize("name", ["notes.txt", "index.html", "results.json"])
def test_a_folder_that_holds_anything_else_is_left_alone(name, tmp_path):
    (tmp_path / name).write_text("my own work")
    with pytest.raises(OSError, match=rf"holds {name}, which is not an earlier report"):
        page.reserve(tmp_path)
    assert (tmp_path / name).read_text() == "my own work"
    page.reserve(tmp_path, force=True)
    assert (tmp_path / name).read_text() == "my own work"


def test_a_file_or_a_place_under_one_is_no_folder(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="is not a folder"):
        page.reserve(tmp_path / "file")
    with pytest.raises(OSError, match="cannot be written to: Not a directory"):
        page.reserve(tmp_path / "file" / "below")
