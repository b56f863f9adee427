"""Error messages for unknown names of encodings."""

import subprocess
import sys
from dataclasses import replace

import pytest
from refusals import refused

from posenc.catalog import CATALOG, create, find
from posenc.encodings.rotary.rope import RoPE
from posenc.support import names
from posenc.support.names import NOT_ENCODINGS, SYNONYMS


@pytest.mark.parametrize(
    ("typed", "facts"),
    [
        ("roep", ["rope"]),
        ("rotary", ["rope"]),
        ("yarn", ["`RoPE(yarn(frequencies(64), …))`"]),
        ("NTK", ["RoPE", "ntk", "`posenc.encodings.rotary.extension`"]),
        ("relative", ["shaw", "transformer-xl", "deberta", "t5"]),
        ("own.py", ["`own.py:CLASS`"]),
        ("xyzzy", ["`posenc list`"]),
    ],
)
def test_a_name_that_is_no_encodings_is_answered_with_what_to_use(typed, facts):
    for lookup in (names.find, find, create):
        with refused(LookupError, f"'{typed}'", *facts):
            lookup(typed)


def test_what_an_answer_points_to_is_there():
    from posenc.encodings.rotary import extension

    for answer in NOT_ENCODINGS.values():
        if "extension" in answer:
            assert callable(getattr(extension, answer.partition("RoPE(")[2].partition("(")[0]))
        if "Use one of" in answer:
            listed = answer.partition("Use one of ")[2].replace(" and ", ", ").split(", ")
            assert {*listed} <= {*names.cards()}
    assert {*SYNONYMS.values()} <= {*names.cards()}
    taken = {names.normalise(slug) for slug in names.cards()}
    assert not taken & {*NOT_ENCODINGS, *SYNONYMS}


def test_case_and_dashes_do_not_matter():
    assert names.find("Transformer XL")["name"] == find("transformer_xl").slug == "transformer-xl"


def test_names_need_no_torch():
    code = (
        "import sys; from posenc.support import names; names.find('rope');"
        " print('torch' in sys.modules)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "False\n"


def test_a_family_is_where_an_encoding_acts():
    families = {card.slug: card.family for card in CATALOG}
    assert {**families, "nope": "none"} == families
    assert [families[name] for name in ("sinusoidal", "rope", "alibi", "shaw")] == [
        "additive", "rotary", "bias", "relative",
    ]  # fmt: skip
    assert replace(find("rope"), make=find(RoPE(8)).make).family == "own"
