"""Convert formulas in Unicode, as docstrings have them, to MathML for the pages.

    θⱼ = base^(−2j/d),  j = 0 … d/2 − 1     radians per token

Rules of the notation: ^ and _ raise and lower the next atom, or a group whose parentheses are then
dropped. A / between spaces is a fraction bar for whole products; without spaces it is a slash.
Words are prose unless brackets or scripts follow them. Three or more spaces separate a formula from
a remark.

The output is MathML Core (W3C 2025), which accepts every Unicode symbol.
"""

import re
import unicodedata
from html import escape
from typing import NamedTuple

FUNCTIONS = {"sin", "cos", "exp", "ln", "max", "min", "mod", "Re"}  # also without brackets
CLOSING = {"(": ")", "[": "]", "{": "}", "⌊": "⌋", "⌈": "⌉", "⟨": "⟩", "|": "|"}
TOKEN = re.compile(
    r"""(?P<gap>\s*)(?:
    (?P<code>`[^`]*`|\w+="[^"]*")
    |(?P<raised>[⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁺ᵀⁿ]+|['′])
    |(?P<lowered>[₀₁₂₃₄₅₆₇₈₉ᵢⱼₖₘₙ]+)
    |(?P<word>[A-Za-z]{2,}(?:['’-][A-Za-z]+)*)
    |(?P<letter>[^\W\d_]\u0304?)
    |(?P<number>\d+(?:\.\d+)?)
    |(?P<sign>\S))""",
    re.VERBOSE,
)
TIGHT = ' lspace="0" rspace="0"'
TOUCHING = ("(", "[", "^", "_")
THIN, WORD, QUAD = (f'<mspace width="{em}em"/>' for em in (0.17, 0.3, 1))


class Token(NamedTuple):
    kind: str
    text: str
    gap: int = 0  # spaces before the token


END = Token("end", "")


def lines(formula: str) -> list[list[str]]:
    """Convert formula lines to MathML; three or more spaces separate a formula from its remark."""
    written = [line.strip() for line in formula.splitlines() if line.strip()]
    return [[math(part) for part in re.split(r"\s{3,}", line)] for line in written]


def math(formula: str) -> str:
    """Convert one formula to a `<math>` element.

    >>> print(math("θⱼ"))
    <math><msub><mi>θ</mi><mi>j</mi></msub></math>
    >>> print(math("c / √(3d)"))
    <math><mfrac><mi>c</mi><msqrt><mn>3</mn><mi>d</mi></msqrt></mfrac></math>
    """
    return f"<math>{''.join(_Reader(formula).until(''))}</math>"


class _Reader:
    """A recursive-descent parser from formulas to MathML elements.

    The grammar:

        formula = { sign | product }          product = factors { " / " factors }
        factors = atom { atom | "·" | "/" }   atom    = name | number | group | √ argument, scripts

    Methods return lists of elements, so that the caller decides whether a row encloses them.
    `rest` holds the tokens still to be read, last first, so that `pop` takes the next.
    """

    def __init__(self, formula: str):
        matches = [(f.lastgroup or "", f) for f in TOKEN.finditer(formula.strip())]
        self.rest = [Token(kind, f[kind], len(f["gap"])) for kind, f in reversed(matches)]
        self.ends: list[str] = []  # closing brackets still to come, innermost last
        # Within scripts there are no fraction bars
        self.scripts = 0

    def until(self, end: str) -> list[str]:
        """Parse up to the closing bracket `end`, or to the end of the text if `end` is ""."""
        self.ends.append(end)
        # The token before a sign decides whether the sign is unary or binary
        elements, before = [], END
        while self.next.text not in ("", end):
            token, atom = self.next, self._begins_atom()
            if token.gap > 1:
                elements.append(QUAD)
            elif token.gap and (before.text == ":" or (before.text in ",;" and self._prose())):
                elements.append(WORD if before.text == ":" else THIN)
            elements += (
                self._product() if atom else self._sign(unary=before.kind in ("sign", "end"))
            )
            before = Token("atom", "") if atom else token
        self.ends.pop()
        return elements

    def _product(self) -> list[str]:
        elements = self._factors()
        # `_factors` has taken slashes without spaces; this one stands between spaces
        while self.next.text == "/":
            self.rest.pop()
            above, below = _bare(elements), _bare(self._factors())
            elements = [f"<mfrac>{_row(above)}{_row(below)}</mfrac>"]
        return elements

    def _factors(self) -> list[str]:
        elements, prose = [], False
        while self.next.gap < 2 or not elements:
            token = self.next
            if token.text == "·" or (token.text == "/" and (self.scripts or not token.gap)):
                elements += self._sign(unary=False)
            elif self._begins_atom():
                either = prose or self._prose()
                if elements and token.gap:
                    elements.append(WORD if either else THIN)
                prose = self._prose()
                elements += self._atom()
            else:
                break
        return elements

    def _atom(self) -> list[str]:
        prose, (kind, text, _) = self._prose(), self.rest.pop()
        if text == "√":
            return [f"<msqrt>{''.join(self._argument())}</msqrt>"]
        if kind == "sign":
            element: str = self._group(text)
        elif kind == "code":
            element = f"<mtext><code>{escape(text.strip('`'))}</code></mtext>"
        elif kind == "number":
            element = f"<mn>{text}</mn>"
        elif text == "Σ":
            element = "<mo>∑</mo>"
        else:
            name, bar = escape(text.rstrip("\u0304")), text.endswith("\u0304")
            element = f"<mtext>{name}</mtext>" if prose else f"<mi>{name}</mi>"
            element = f"<mover>{element}<mo>¯</mo></mover>" if bar else element
        return [self._scripted(element, "under" if text == "Σ" else "sub")]

    def _group(self, opening: str) -> str:
        inner = self.until(CLOSING[opening])
        closing = self.rest.pop().text if self.rest else ""
        # Without a mathematical font, browsers double the height of stretchy brackets
        tall = any(tag in element for element in inner for tag in ("<mfrac", "∑"))
        fences = [
            f'<mo form="{form}" fence="true" stretchy="{str(tall).lower()}">{text}</mo>'
            for form, text in (("prefix", opening), ("postfix", closing))
        ]
        group = Parentheses(f"<mrow>{fences[0]}{''.join(inner)}{fences[1]}</mrow>")
        group.inner = inner
        return group if opening in "({" else str(group)

    def _scripted(self, base: str, low: str) -> str:
        """Parse the sub- and superscripts after `base`, and return them and `base` as one element.

        - `low`: "under" to set a subscript below the base, as for a limit, otherwise "sub"
        """
        below, above = [], []
        while not self.next.gap:
            kind, text, _ = self.next
            if kind in ("raised", "lowered"):
                self.rest.pop()
                # ⁿ and ₙ become n, which is parsed like any formula
                plain = unicodedata.normalize("NFKC", text.replace("'", "′"))
                (above if kind == "raised" else below).extend(_Reader(plain).until(""))
            elif text in ("^", "_"):
                self.rest.pop()
                self.scripts += 1
                (above if text == "^" else below).extend(self._argument())
                self.scripts -= 1
            else:
                break
        if not below and not above:
            return base
        # msub, msup, msubsup; munder, mover, munderover
        kind = f"m{low * bool(below)}{('sup' if low == 'sub' else 'over') * bool(above)}"
        return (
            f"<{kind}>{base}{''.join(_row(script) for script in (below, above) if script)}</{kind}>"
        )

    def _argument(self) -> list[str]:
        """Parse the argument of a root, subscript or superscript: one atom, or a group."""
        sign = self._sign(unary=True) if self.next.text == "−" else []
        return sign + _bare(self._atom()) if self._begins_atom() else sign

    def _sign(self, unary: bool) -> list[str]:
        text = escape(self.rest.pop().text)
        if text == ":":
            return ["<mtext>:</mtext>"]
        attributes = ' form="prefix"' if unary and text in "+−±" else ""
        return [f"<mo{attributes or TIGHT * (text == '/')}>{text}</mo>"]

    @property
    def next(self) -> Token:
        return self.rest[-1] if self.rest else END

    def _begins_atom(self) -> bool:
        kind, text, _ = self.next
        if kind == "sign":
            return (text in CLOSING or text == "√") and text != self.ends[-1]
        return kind in ("code", "word", "letter", "number")

    def _prose(self) -> bool:
        """Test whether the next word is prose, not a variable."""
        if len(self.rest) < 2:
            return self.next.kind == "word"
        (kind, text, _), after = self.rest[-1], self.rest[-2]
        if kind == "letter":
            return text == "a" and after.kind == "word" and after.gap == 1 and not self.scripts
        touched = not after.gap and (after.text in TOUCHING or after.kind in ("raised", "lowered"))
        return kind == "word" and text not in FUNCTIONS and not touched


class Parentheses(str):
    """A parenthesised group as MathML; `inner` has its elements without the parentheses."""

    inner: list[str]


def _bare(elements: list[str]) -> list[str]:
    """Remove the parentheses that enclose all elements, if there are any."""
    return (
        elements[0].inner
        if len(elements) == 1 and isinstance(elements[0], Parentheses)
        else elements
    )


def _row(elements: list[str]) -> str:
    return elements[0] if len(elements) == 1 else f"<mrow>{''.join(elements)}</mrow>"
