"""`posenc list`, `posenc show` and `posenc cite`: what encodings there are."""

from dataclasses import asdict
from typing import Annotated, Any, Literal

from cyclopts import Parameter
from rich.console import Console
from rich.markup import escape

from posenc.commands.app import LOOK, command
from posenc.commands.errors import UsageError, own_code
from posenc.commands.options import AsJson, chosen, print_json, printed_card
from posenc.support import glossary, made, names


@command(
    LOOK,
    place=0,
    examples=(
        ("posenc list", "all of them, by family, the most used first"),
        ("posenc list --json", "with formulas, papers and what holds"),
    ),
)
def list_(*, by: Literal["family", "use"] = "family", as_json: AsJson = False) -> None:
    """List every encoding, with what it does and who uses it; or say which to take for what.

    Parameters
    ----------
    by
        Encodings by family; or by use, what to take and why.
    as_json
        Print one JSON document instead.
    """
    from posenc.show.report import guide

    if as_json:
        rows = map(asdict, guide.GUIDE) if by == "use" else names.cards().values()
        return print_json([*rows])
    from posenc.show.report.terminal import catalog

    if by == "use":
        return catalog.uses(guide.GUIDE, Console())
    catalog.catalog(names.cards().values(), Console())


@command(
    LOOK,
    place=1,
    small=True,
    examples=(
        ("posenc show rope", ""),
        ("posenc show examples/own_encoding.py:LogBias", "one of your own, measured"),
        ("posenc show alibi --json", "for a program"),
    ),
)
def show(
    name: str,
    /,
    *,
    measure: Annotated[bool, Parameter(negative="")] = False,
    as_json: AsJson = False,
) -> None:
    """Show one encoding: what it means, its formula, its properties as measured, its paper.

    Of one of your own, also what attention, caches and packed texts ask of it, tried on it: the
    exit code is 1 if a promise is broken, and the remedy stands below what was found. Of another
    word about positions, or a config key, what it means, who uses it and whether posenc has it.

    Parameters
    ----------
    name
        As `posenc list` spells it; case and dashes do not matter. Or an encoding of your own, as
        my_module.py:Mine or package.module:Mine, which runs that code. Or a word in quotes, such
        as "permutation invariant".
    measure
        Measure the properties anew, not as they were measured once for these files.
    as_json
        Print one JSON document instead.
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

        catalog.card(described, Console())
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
        As `posenc list` spells them.
    """
    for name in filter(names.is_own, encodings):
        mine = name.rpartition(":")[2]
        raise UsageError(f"{mine} is an encoding of your own, and has no paper to cite.")
    papers = dict.fromkeys(card["paper"]["bibtex"] for card in map(printed_card, encodings))
    print("\n\n".join(papers))


def print_term(term: glossary.Term) -> None:
    also = f" ({', '.join(term.also)})" if term.also else ""
    console = Console(highlight=False)
    console.print(f"[bold]{escape(term.word)}[/]{escape(also)}")
    used_by = f"used by {term.used_by}" if term.used_by else ""
    here = f"in posenc: {term.here}" if term.here else ""
    where = f"→ nearest: {term.where}" if term.here else f"→ {term.where}"
    for line in filter(None, (term.means, used_by, here, where)):
        console.print(line, markup=False)


def _known(name: str) -> dict[str, Any]:
    """The card with its properties, which are measured, with torch, if they never were."""
    card = printed_card(name)
    modules = names.modules()[card["name"]], "posenc.properties.measures"
    found = made.read("properties", card["name"], modules)
    if found is None:
        from posenc.properties.card import findings

        found = findings(*chosen([name]))
    return card | {name: value for name, value in found.items() if name != "defects"}


def _measured(name: str) -> dict[str, Any]:
    """Measure the properties of an encoding; try on one's own what attention asks of it, too."""
    (card,) = cards = chosen([name])
    import torch

    from posenc.compat.threads import threads
    from posenc.properties import check, conform
    from posenc.properties.card import described

    # What is kept was measured with learned weights of this seed
    torch.manual_seed(0)
    with own_code(cards), threads(1):
        encoding = card.make(64, 4)
        findings = check(encoding, 64, 4)
        outcomes = conform(card, 64, 4) if names.is_own(name) else []
    return described(card, encoding.causal, findings, outcomes)
