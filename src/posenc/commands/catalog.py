"""`posenc list`, `posenc show` and `posenc cite`: encodings of the catalogue."""

from dataclasses import asdict
from typing import Annotated, Any, Literal

from cyclopts import Parameter
from rich.console import Console
from rich.markup import escape

from posenc.commands.app import LOOK, command
from posenc.commands.errors import UsageError, user_code_errors
from posenc.commands.options import AsJson, cards_of, packaged_card, print_json
from posenc.support import glossary, made, names


@command(
    LOOK,
    place=0,
    examples=(
        ("posenc list", "all encodings by family, the most used first"),
        ("posenc list --json", "with formulas, papers and properties"),
    ),
)
def list_(*, by: Literal["family", "use"] = "family", as_json: AsJson = False) -> None:
    """List all encodings with the models that use them, or recommend an encoding for each use.

    Parameters
    ----------
    by
        "family" lists the encodings by family; "use" recommends an encoding for each use.
    as_json
        Print one JSON document instead of text.
    """
    from posenc.show.report import guide

    if as_json:
        rows = map(asdict, guide.GUIDE) if by == "use" else names.cards().values()
        return print_json([*rows])
    from posenc.show.report.terminal import catalog

    if by == "use":
        return catalog.print_uses(guide.GUIDE, Console())
    catalog.print_catalog(names.cards().values(), Console())


@command(
    LOOK,
    place=1,
    small=True,
    examples=(
        ("posenc show rope", ""),
        ("posenc show examples/own_encoding.py:LogBias", "an encoding of your own, measured"),
        ("posenc show alibi --json", "as JSON"),
    ),
)
def show(
    name: str,
    /,
    *,
    measure: Annotated[bool, Parameter(negative="")] = False,
    as_json: AsJson = False,
) -> None:
    """Show one encoding: its meaning, formula, measured properties and paper.

    If NAME is an encoding of your own, the command also tests whether this encoding works with
    every implementation of attention, with caches and with packed texts. If a test fails, the exit
    code is 1, and the command prints a remedy for each failed test. If NAME is a term of the field
    or a config key, the command prints its definition, the models that use it, and the most similar
    part of posenc.

    Parameters
    ----------
    name
        A name in `posenc list`, in which case and dashes are ignored; an encoding of your own,
        written as my_module.py:Mine or package.module:Mine, whose code posenc runs; or a term in
        quotes, such as "permutation invariant".
    measure
        Measure the properties of the encoding now, instead of reading the measurements stored with
        posenc.
    as_json
        Print one JSON document instead of text.
    """
    if names.is_own(name):
        described = _measured(name)
    else:
        name = names.resolve_synonym(name)
        if names.normalise(name) not in map(names.normalise, names.cards()) and (
            term := glossary.find(name)
        ):
            return print_json(asdict(term)) if as_json else print_term(term)
        described = _measured(name) if measure else _known(name)
    if as_json:
        print_json(described)
    else:
        from posenc.show.report.terminal import catalog

        catalog.print_card(described, Console())
    if any(one["holds"] is False for one in described.get("promises", {}).values()):
        raise SystemExit(1)


@command(
    LOOK,
    place=3,
    examples=(
        ("posenc cite rope alibi", ""),
        ("posenc cite rope > references.bib", ""),
    ),
)
def cite(*encodings: Annotated[str, Parameter(name="NAMES", required=True)]) -> None:
    """Print the BibTeX entries of encodings.

    Parameters
    ----------
    encodings
        Names in `posenc list`.
    """
    for name in filter(names.is_own, encodings):
        mine = name.rpartition(":")[2]
        raise UsageError(
            f"`NAMES` must be encodings of posenc, got {mine}, an encoding of your own. Leave out"
            f" {mine}."
        )
    papers = dict.fromkeys(card["paper"]["bibtex"] for card in map(packaged_card, encodings))
    print("\n\n".join(papers))


def print_term(term: glossary.Term) -> None:
    console = Console(highlight=False)
    console.print(f"[bold]{escape(term.word)}[/]")
    also = f"also found as: {', '.join(term.also)}" if term.also else ""
    used_by = f"used by {term.used_by}" if term.used_by else ""
    here = f"in posenc: {term.here}" if term.here else ""
    where = f"→ nearest: {term.where}" if term.here else f"→ {term.where}"
    for line in filter(None, (term.means, used_by, here, where, also)):
        console.print(line, markup=False)


def _known(name: str) -> dict[str, Any]:
    """Return an encoding's catalogue data and its properties.

    Properties without stored results are measured.
    """
    card = packaged_card(name)
    modules = names.modules()[card["name"]], "posenc.properties.measures"
    found = made.read("properties", card["name"], modules)
    if found is None:
        from posenc.properties.card import findings

        found = findings(*cards_of([name]))
    return card | {name: value for name, value in found.items() if name != "defects"}


def _measured(name: str) -> dict[str, Any]:
    """Measure an encoding's properties; for a user's encoding, also run the conformance tests."""
    (card,) = cards = cards_of([name])
    import torch

    from posenc.compat.threads import threads
    from posenc.properties import check, conform
    from posenc.properties.card import described

    # Stored properties were measured with random weights of this seed
    torch.manual_seed(0)
    with user_code_errors(cards), threads(1):
        encoding = card.make(64, 4)
        findings = check(encoding, 64, 4)
        outcomes = conform(card, 64, 4) if names.is_own(name) else []
    return described(card, encoding.causal, findings, outcomes)
