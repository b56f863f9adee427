"""`posenc list`, `posenc show` and `posenc cite`: what encodings there are."""

from typing import Annotated

from cyclopts import Parameter
from rich.console import Console

from posenc.commands.app import app
from posenc.commands.errors import UsageError, own_code
from posenc.commands.options import AsJson, chosen, print_json, printed_card
from posenc.core import names


@app.command(name="list")
def list_(*, as_json: AsJson = False) -> None:
    """List every encoding, by family, with what it does and who uses it.

    Parameters
    ----------
    as_json
        Print one JSON document instead.
    """
    if as_json:
        return print_json([*names.cards().values()])
    from posenc.show.report.terminal import catalog

    catalog.catalog(names.cards().values(), Console())


@app.command
def show(name: str, /, *, as_json: AsJson = False) -> None:
    """Show one encoding: what it means, its formula, its properties as measured, its paper.

    Of one of your own, also what attention, caches and packed texts ask of it, tried on it.

    Parameters
    ----------
    name
        As `posenc list` spells it; case and dashes do not matter. Or an encoding of your own, as
        my_module.py:Mine or package.module:Mine, which runs that code.
    as_json
        Print one JSON document instead.
    """
    (card,) = cards = chosen([name])
    from posenc.properties import check, conform

    with own_code(cards):
        encoding = card.make(64, 4)
        findings = check(encoding, 64, 4)
        outcomes = conform(card, 64, 4) if names.is_own(name) else []
    if as_json:
        properties = {n: {"holds": f.holds, "why": f.why} for n, f in findings.items()}
        described = card.to_json() | {"causal": encoding.causal, "text": card.text}
        promises = {one.name: {"holds": one.holds, "why": str(one)[2:]} for one in outcomes}
        described |= {"promises": promises} if promises else {}
        return print_json(described | {"properties": properties})
    from posenc.show.report.terminal import tables

    tables.card(card, findings, Console(), encoding.causal, outcomes)


@app.command
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
