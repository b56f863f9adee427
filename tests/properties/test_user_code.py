"""User-defined encodings by name, against the classes in their files."""

import sys

import pytest
import torch
from refusals import refused

from posenc import ALiBi, Encoding, RoPE, Sum
from posenc.catalog import choose, create, find
from posenc.lab.compare.comparison import compare
from posenc.properties import user_code

MINE = '''"""Nearness: the nearer, the better.

    score(i, j) = qᵢ · kⱼ · scale − |pᵢ − pⱼ|
"""

from dataclasses import dataclass

import torch

from posenc import Encoding, RoPE
from posenc.biases.distance import DistanceBias

RUNS = []
RUNS.append(1)


@dataclass
class Settings:
    slope: float = 1.0


class Mine(Encoding):
    def __init__(self, heads, width):
        super().__init__()
        self.heads, self.width = heads, width

    def on_scores(self, q, k, q_at, k_at, scale):
        return DistanceBias(lambda h, offset: -1.0 * offset.abs(), q, q_at, k_at)


class Turned(Encoding):
    """Turned by one radian a token."""

    def __init__(self, *, dim, slow=False):
        super().__init__()
        self.dim, self.slow = dim, slow


def half(dim):
    """RoPE in halves."""
    return RoPE(dim, layout="half")


class Asks(Encoding):
    def __init__(self, tokens):
        super().__init__()


class Breaks(Encoding):
    def __init__(self):
        super().__init__()
        raise ArithmeticError("out of luck")


class Late(Encoding):
    def on_queries(self, q, at):
        return q / self.nothing


def number():
    return 3


one = RoPE(8)
'''


@pytest.fixture
def mine(tmp_path):
    path = tmp_path / "my_module.py"
    path.write_text(MINE)
    return path


def test_a_class_is_made_with_the_sizes_that_its_constructor_names(mine):
    encoding = create(f"{mine}:Mine", dim=8, heads=2)
    assert (type(encoding).__name__, encoding.heads, encoding.width) == ("Mine", 2, 16)
    encoding = create(f"{mine}:Turned", 8, 2, slow=True)
    assert (encoding.dim, encoding.slow) == (8, True)


def test_a_function_and_an_encoding_serve_too(mine):
    assert create(f"{mine}:half", 8, 2).layout == "half"
    one = create(f"{mine}:one", 64, 4)
    assert one.dim == 8  # an encoding keeps its sizes


ADDITIVE = '''"""Rows that are added to embeddings."""

import torch

from posenc import Encoding, Sinusoidal


class Added(Encoding):
    def __init__(self, width):
        super().__init__()
        self.width = width

    def on_embeddings(self, x, at):
        return x + at.unsqueeze(-1) * torch.ones(self.width)


class Narrow(Added):
    def __init__(self, dim):
        super().__init__(dim)


class Unsized(Encoding):
    def __init__(self, dim):
        super().__init__()
        self.ones = torch.ones(dim)

    def on_embeddings(self, x, at):
        return x + at.unsqueeze(-1) * self.ones


def fixed(dim):
    return Sinusoidal(16)


def multiplied(dim, heads):
    return Sinusoidal(dim * heads)
'''


@pytest.mark.parametrize("name", ["Added", "fixed", "multiplied"])
def test_an_additive_encoding_is_made_for_the_width_of_the_embeddings(tmp_path, name):
    """A class that names `width`, and functions that make one of 2 heads of 8 channels."""
    path = tmp_path / "additive.py"
    path.write_text(ADDITIVE)
    assert create(f"{path}:{name}", dim=8, heads=2).width == 16


@pytest.mark.parametrize("name", ["Narrow", "Unsized"])
def test_an_additive_class_that_names_dim_is_told_to_name_width(tmp_path, name):
    path = tmp_path / "additive.py"
    path.write_text(ADDITIVE)
    with refused(TypeError, name, 8, "`width`"):
        create(f"{path}:{name}", dim=8, heads=2)
    # One head has all channels of the embeddings
    assert create(f"{path}:{name}", dim=8, heads=1).on_embeddings


def test_its_card_says_what_its_docstring_says(mine):
    card = find(f"{mine}:Mine")
    assert (card.name, card.slug, card.paper, card.holds) == ("Mine", "mine", None, frozenset())
    assert card.summary == "the nearer, the better."
    assert card.formula == "score(i, j) = qᵢ · kⱼ · scale − |pᵢ − pⱼ|"
    assert find(f"{mine}:Turned").summary == "Turned by one radian a token."
    assert find(f"{mine}:half").summary == "RoPE in halves."


def test_an_instance_has_a_card_and_is_copied():
    alibi = ALiBi(4)
    card = find(alibi)
    assert card.name == "ALiBi"
    assert card.text == find("alibi").text
    assert type(card.make(16, 2)) is ALiBi
    assert card.make(16, 2) is not alibi
    assert find(card) is card
    assert find(Sum(RoPE(16), alibi)).name == "RoPE + ALiBi"
    assert find(Sum(RoPE(16), alibi)).slug == "rope-alibi"


def test_labels_are_unique_and_what_is_named_twice_counts_once(mine):
    own = f"{mine}:Mine"
    cards = choose([own, "alibi", ALiBi(4), own, "ALiBi", ALiBi(4), "rope"])
    assert [card.name for card in cards] == ["Mine", "ALiBi", "ALiBi 2", "ALiBi 3", "RoPE"]
    assert len({card.slug for card in cards}) == 5


def test_a_module_that_python_can_import_is_named_with_dots():
    card = find("posenc.encodings.bias.alibi:ALiBi")
    assert card.make(16, 4).slopes.tolist() == ALiBi(4).slopes.tolist()


def test_nothing_is_shadowed_and_nothing_left_behind(tmp_path, monkeypatch):
    """A file called as a module of Python's own is run, and that module is not hidden."""
    path = tmp_path / "colorsys.py"
    path.write_text(MINE)
    before = list(sys.path)
    monkeypatch.delitem(sys.modules, "colorsys", raising=False)
    find(f"{path}:Mine")
    assert sys.path == before
    assert [each.name for each in tmp_path.iterdir()] == ["colorsys.py"]
    import colorsys

    assert hasattr(colorsys, "rgb_to_hsv")


def test_a_file_is_run_once_until_it_is_written_to_and_never_unless_named(mine):
    first = type(create(f"{mine}:Mine", 8, 2))
    assert type(create(f"{mine}:Mine", 8, 2)) is first
    assert sys.modules[first.__module__].RUNS == [1]
    mine.write_text(MINE.replace("class Mine", "class Other"))
    assert find(f"{mine}:Other").name == "Other"
    (mine.parent / "never.py").write_text("raise SystemExit('this was run')")
    with refused(LookupError, "never.py", "CLASS"):
        find(str(mine.parent / "never.py"))


WRONG = {
    "{}/no.py:Mine": r"there is no file .*no\.py\. .*`my_module\.py:Mine`",
    "{}:Mine": r"there is no file|no encoding is called",
    "{}/my_module.py:Mien": r"my_module\.py has no `Mien`\. Did you mean Mine\?",
    "{}/my_module.py:xyzzy": r"has no `xyzzy`\. Its encodings: Mine, Turned, Asks, Breaks, Late\.",
    "{}/my_module.py:RUNS": r"RUNS must be a class derived from `posenc\.Encoding`, .* got a list",
    "{}/my_module.py:Settings": r"Settings must be a class derived .* got the class Settings\.",
    "{}/syntax.py:Mine": r"syntax\.py, line 2: SyntaxError: ",
    "{}/raises.py:Mine": r"raises\.py, line 3: ZeroDivisionError: division by zero",
    "{}/leaves.py:Mine": r"leaves\.py, line 1: SystemExit: 3",
    "{}/imports.py:Mine": r"imports\.py, line 1: ModuleNotFoundError: No module named 'nowhere_",
    "nowhere_at_all.inner:Mine": "no module 'nowhere_at_all'.*`my_module.py:Mine`",
    "posenc.nowhere:Mine": r"no module 'posenc\.nowhere'",
    "torch.nn:Linear": r"torch\.nn:Linear must be .* got the class Linear\. It has no encodings",
    "http://x": "no encoding is called 'http://x'",
}


@pytest.mark.parametrize("name", WRONG)
def test_a_name_that_leads_nowhere_is_answered_in_a_sentence(name, mine):
    folder = mine.parent
    (folder / "syntax.py").write_text("import torch\nclass Mine(:\n")
    (folder / "raises.py").write_text("def f():\n\n    return 1 / 0\n\nf()\n")
    (folder / "leaves.py").write_text("raise SystemExit(3)\n")
    (folder / "imports.py").write_text("import nowhere_at_all\n")
    with pytest.raises(LookupError, match=WRONG[name]) as caught:
        find(name.format(folder))
    assert "\n" not in str(caught.value)


def test_a_file_that_may_not_be_read_is_refused(mine, monkeypatch):
    def refuse(path):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(type(mine), "read_bytes", refuse)
    with refused(LookupError, "my_module.py"):
        find(f"{mine}:Mine")


def test_a_constructor_that_asks_for_more_is_refused(mine):
    with refused(TypeError, "my_module.py", "`tokens`", "`dim`"):
        create(f"{mine}:Asks", 8, 2)
    with refused(TypeError, "my_module.py", "`Encoding`", 3):
        create(f"{mine}:number", 8, 2)
    with refused(TypeError, "layout"):
        create(f"{mine}:one", 8, 2, layout="half")


class Own(Encoding):
    """Louder: each key is louder than the one before."""

    def on_keys(self, k, at):
        return k * at.unsqueeze(-1)


def test_instances_are_compared_with_names_and_stay_as_they_are(text, small, mine):
    """`compare([ALiBi(4), Mine()])`, held against the encodings of the catalogue."""
    alibi = ALiBi(2)
    state = {name: value.clone() for name, value in vars(alibi).items() if torch.is_tensor(value)}
    result = compare([alibi, Own(), "alibi", f"{mine}:Mine"], text, small)
    own, louder, named, nearness = result.encodings
    assert [one.name for one in result.encodings] == ["ALiBi", "Own", "ALiBi 2", "Mine"]
    assert (own.properties, own.curve, own.shuffle) == (
        named.properties, named.curve, named.shuffle,
    )  # fmt: skip
    assert louder.paper is None
    assert louder.summary == "each key is louder than the one before."
    assert nearness.properties["decaying"].holds
    assert all(value.equal(vars(alibi)[name]) for name, value in state.items())


def test_an_instance_of_other_sizes_is_refused(text, small):
    with refused(ValueError, "`encoding`", "`heads`", 8, 2):
        compare([ALiBi(8)], text, small)


def test_what_goes_wrong_elsewhere_is_not_blamed_on_ones_own(mine):
    with pytest.raises(ArithmeticError) as caught:
        _ = 1 / 0
    for cards in ([], [find("rope")], [find(f"{mine}:Mine")]):
        assert user_code.failure(caught.value, cards) is None
