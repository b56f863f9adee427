"""Cards of the catalogue as plain data, read from source files without importing torch.

    CARD = Card(name="RoPE", paper=paper("su2021roformer"), make=RoPE, holds=ROTATION)

Only constants are evaluated; functions and classes are replaced by their names. So `posenc list`
does not import torch, and shows an encoding as soon as its file and its line in the catalogue are
saved. Tests compare these cards with those of the imported catalogue.
"""

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

POSENC = Path(__file__).parent.parent
HOME = "posenc.encodings."  # modules of encodings
ENTRY = re.compile(r"@misc\{(\w+),\n.*?\n\}", re.DOTALL)
FIELD = re.compile(r"^  (\w+) = \{+(.*?)\}+,$", re.MULTILINE)


@dataclass(frozen=True)
class Paper:
    """The paper of an encoding, with its entry in `papers.bib`."""

    key: str
    title: str
    authors: str  # in the form of BibTeX: "Family, Given and Family, Given"
    year: int
    link: str
    bibtex: str

    @property
    def short(self) -> str:
        """The first author and the year: "Su et al. 2021"."""
        people = [person.split(",")[0] for person in self.authors.split(" and ")]
        few = len(people) < 3 and "others" not in people
        return f"{' and '.join(people) if few else f'{people[0]} et al.'} {self.year}"


@cache
def papers() -> dict[str, Paper]:
    """Read the papers of all encodings from `encodings/papers.bib`, by key."""
    found = {}
    for entry in ENTRY.finditer((POSENC / "encodings/papers.bib").read_text("utf-8")):
        of = dict(FIELD.findall(entry[0]))
        year = int(of["year"])
        found[entry[1]] = Paper(entry[1], of["title"], of["author"], year, of["url"], entry[0])
    return found


def paper(key: str) -> Paper:
    """Return the paper with this key in `encodings/papers.bib`.

    >>> paper("su2021roformer").short
    'Su et al. 2021'
    """
    if key not in papers():
        raise LookupError(
            f"`key` must be a key in encodings/papers.bib, got {key!r}. Add an entry with this key."
        )
    return papers()[key]


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
            "bibtex": paper.bibtex,
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
        super().__init__(Card=dict, paper=paper, frozenset=frozenset, __doc__=text)
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
