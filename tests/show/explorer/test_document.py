"""The page as a file: one complete document that never replaces files of others."""

import json
import re

import pytest
from pages import page_data
from refusals import refused

import posenc
from posenc import CATALOG
from posenc.models.files.errors import ModelError
from posenc.show.explorer import document
from posenc.show.explorer.explore import sorted_out


@pytest.fixture(scope="module")
def explorer():
    return posenc.explore("rope")


def test_the_page_holds_all_data_and_asks_for_nothing(explorer):
    assert page_data(explorer.html) == json.loads(json.dumps(explorer.data))
    assert not re.findall(r"""(?:src|href)=["']?https?:""", explorer.html)
    assert not re.findall(r"^import ", explorer.html, re.MULTILINE)
    assert re.findall(r"/\* \{\w+\} \*/", explorer.html) == []


def test_text_cannot_end_its_element(explorer):
    page = dict(explorer.data) | {"notes": ["</script><!-- <script>alert(1)"]}
    html = document.render(page)
    assert page_data(html)["notes"] == page["notes"]
    assert html.count("</script") == explorer.html.count("</script")


def test_a_notebook_shows_it(explorer):
    frame = explorer._repr_html_()
    assert frame.startswith("<iframe title=")
    assert "<script" not in frame  # all of it is in the attribute
    assert repr(explorer).startswith(f"Explorer({len(CATALOG)} encodings, ")


def test_a_page_replaces_a_page_and_nothing_else(explorer, tmp_path):
    out = explorer.save(tmp_path / "page.html")
    assert explorer.save(out).read_text("utf-8") == explorer.html
    assert [one.name for one in tmp_path.iterdir()] == ["page.html"]
    out.write_text("my notes")
    with refused(FileExistsError, "page.html"):
        explorer.save(out)
    assert out.read_text() == "my notes"
    explorer.save(out, force=True)
    with pytest.raises(IsADirectoryError, match="is a folder"):
        explorer.save(tmp_path)
    with pytest.raises(FileNotFoundError, match="is not a folder"):
        explorer.save(tmp_path / "none" / "page.html")


def test_what_is_neither_an_encoding_nor_a_model_is_said():
    with refused(LookupError, "'rpoe'"):
        posenc.explore("rpoe")
    with refused(ModelError, "none.json"):
        posenc.explore("none.json")
    with refused(TypeError, "`what`"):
        sorted_out([3])


@pytest.fixture
def modules(monkeypatch):
    """Modules of JavaScript that stand nowhere."""

    def placed(**texts):
        known = {f"page/{name}.js": text for name, text in texts.items()}
        monkeypatch.setattr(document, "_text", known.__getitem__)
        document.script.cache_clear()
        return document.script

    yield placed
    document.script.cache_clear()


def test_modules_stand_after_what_they_import_each_in_its_scope(modules):
    script = modules(
        main='import { twice as double } from "./a.js";\nconst own = double(2);\n',
        a='import { own } from "./b.js";\nexport function twice(x) { return own * x; }\n',
        b="const hidden = 2;\nexport const own = hidden;\n",
    )("page/main.js")
    assert script.index("$page_b = ") < script.index("$page_a = ") < script.index("$page_main = ")
    assert "const { twice: double } = $page_a;" in script
    assert "export" not in script


def test_modules_in_a_circle_are_refused(modules):
    script = modules(main='import { a } from "./a.js";\n', a='import { b } from "./main.js";\n')
    with pytest.raises(ValueError, match=r"got page/main.js → page/a.js → page/main.js"):
        script("page/main.js")


def test_other_ways_to_export_are_refused(modules):
    script = modules(main="const a = 3;\nexport default a;\n")
    with pytest.raises(ValueError, match=r"page/main.js imports or exports in a way"):
        script("page/main.js")
