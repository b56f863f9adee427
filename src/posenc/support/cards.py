"""Cards of the catalogue as plain data, read from source files without importing torch.

    CARD = Card(name="RoPE", paper=Paper(…), make=RoPE, holds=ROTATION | {several_axes})

Only constants are evaluated; functions and classes are replaced by their names. So `posenc list`
does not import torch, and shows an encoding as soon as its file and its line in the catalogue are
saved. Tests compare these cards with those of the imported catalogue.
"""

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

POSENC = Path(__file__).parent.parent
HOME = "posenc.encodings."  # modules of encodings


@dataclass(frozen=True)
class Paper:
    """The paper of an encoding, with `url` if it is not on arXiv."""

    key: str
    title: str
    authors: str  # in the form of BibTeX: "Family, Given and Family, Given"
    year: int
    arxiv: str = ""
    url: str = ""

    @property
    def link(self) -> str:
        return self.url or f"https://arxiv.org/abs/{self.arxiv}"

    @property
    def short(self) -> str:
        """The first author and the year: "Su et al. 2021"."""
        people = [person.split(",")[0] for person in self.authors.split(" and ")]
        few = len(people) < 3 and "others" not in people
        return f"{' and '.join(people) if few else f'{people[0]} et al.'} {self.year}"

    def bibtex(self) -> str:
        """Return a BibTeX entry of the paper."""
        where = (
            f"  eprint = {{{self.arxiv}}},\n  archivePrefix = {{arXiv}},\n" if self.arxiv else ""
        )
        return (
            f"@misc{{{self.key},\n  title = {{{{{self.title}}}}},\n  author = {{{self.authors}}},\n"
            f"  year = {{{self.year}}},\n{where}  url = {{{self.link}}},\n}}"
        )


def slug(name: str) -> str:
    """Convert a name to its form on the command line, in lower case with dashes.

    >>> slug("Linear sinusoidal")
    'linear-sinusoidal'
    """
    return "-".join(name.lower().replace("/", " ").replace("+", " ").split())


def family(module: str) -> str:
    """Return an encoding's family, the folder of its module; "own" for user code.

    >>> family("posenc.encodings.bias.alibi"), family("mine")
    ('bias', 'own')
    """
    house, _, inner = module.partition(HOME)
    if house or not inner:
        return "own"
    return inner.partition(".")[0] if "." in inner else "none"


def summary(text: str) -> str:
    """Return the first sentence of a docstring, without the name before the colon."""
    first = " ".join(text.split("\n\n")[0].split())
    return first.partition(": ")[2] or first


def formula(text: str) -> str:
    """Return the indented lines of a docstring, which are the formula and its symbols."""
    blocks = [b for b in text.split("\n\n") if b.startswith("    ")]
    return "\n".join(line[4:] for line in "\n\n".join(blocks).splitlines())


def in_plain_data(
    name: str, paper: Paper | None, module: str, text: str, used_by: str, holds: Iterable[str]
) -> dict[str, Any]:
    """Return a card as plain data for JSON; `text` is the docstring of the encoding's module."""
    return {
        "name": slug(name),
        "title": name,
        "family": family(module),
        "summary": summary(text),
        "text": text,
        "formula": formula(text),
        "paper": paper
        and {
            "short": paper.short,
            "title": paper.title,
            "link": paper.link,
            "bibtex": paper.bibtex(),
        },
        "used_by": used_by,
        "holds": sorted(holds),
    }


def read(catalog: str) -> Iterator[dict[str, Any]]:
    """Read the cards of the encodings that a catalogue module imports, in import order."""
    for module, name, source in _cards(catalog):
        card = source[name]
        yield in_plain_data(
            card["name"],
            card["paper"],
            module,
            card.get("docstring", source["__doc__"]),
            card.get("used_by", ""),
            card["holds"],
        )


def modules(catalog: str) -> dict[str, str]:
    """Map the slug of each encoding in a catalogue to its module."""
    return {slug(source[name]["name"]): module for module, name, source in _cards(catalog)}


def _cards(catalog: str) -> Iterator[tuple[str, str, "_Source"]]:
    imported = [node.module or "" for node in _Source(catalog).imports]
    for module in dict.fromkeys(name for name in imported if name.startswith(HOME)):
        source = _Source(module)
        for name, value in source.constants.items():
            match value:
                case ast.Call(ast.Name("Card")):
                    yield module, name, source


class _Source(dict[str, Any]):
    """A namespace for evaluating the source of a card without importing the card's module.

    Names in capitals are constants of the module, or of the module they are imported from. Other
    names, of functions and classes, evaluate to strings.
    """

    def __init__(self, module: str):
        path = POSENC.parent.joinpath(*module.split(".")).with_suffix(".py")
        tree = ast.parse(path.read_text("utf-8"), path)
        text = (ast.get_docstring(tree, clean=False) or "").strip()
        super().__init__(Card=dict, Paper=Paper, frozenset=frozenset, __doc__=text)
        self.imports = [node for node in tree.body if isinstance(node, ast.ImportFrom)]
        self.constants: dict[str, ast.expr] = {}
        for node in tree.body:
            match node:
                case ast.Assign([ast.Name(name)], value) if name.isupper():
                    self.constants[name] = value

    def __missing__(self, name: str) -> Any:
        if name in self.constants:
            return eval(compile(ast.Expression(self.constants[name]), "", "eval"), {}, self)
        for node in self.imports if name.isupper() else ():
            if node.module and name in {alias.name for alias in node.names}:
                return _Source(node.module)[name]
        return name
