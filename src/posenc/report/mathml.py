"""Formulas as docstrings write them, in Unicode, drawn as MathML: one truth for terminal and page.

    θⱼ = base^(−2j/d),  j = 0 … d/2 − 1     radians per token

The notation means what it looks like. Where looks are not enough, this holds: what ^ and _ raise
and lower is one atom, or all in parentheses, which then go; a / between spaces is a fraction bar
over and under whole products, without spaces a slash; words are prose unless brackets or scripts
follow them; three spaces or more part a formula from a remark.

MathML Core, W3C 2025. It takes Unicode as it is, so every symbol of the text is one of the drawing.
"""

import re
import unicodedata
from html import escape
from typing import NamedTuple

FUNCTIONS = {"sin", "cos", "exp", "ln", "max", "min", "mod", "Re"}  # these also without brackets
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
    gap: int = 0  # spaces before it


END = Token("end", "")


def lines(formula: str) -> list[list[str]]:
    """Each line in its parts: a formula, and what three spaces or more part from it."""
    written = [line.strip() for line in formula.splitlines() if line.strip()]
    return [[math(part) for part in re.split(r"\s{3,}", line)] for line in written]


def math(formula: str) -> str:
    """One formula as an element.

    >>> print(math("θⱼ"))
    <math><msub><mi>θ</mi><mi>j</mi></msub></math>
    >>> print(math("c / √(3d)"))
    <math><mfrac><mi>c</mi><msqrt><mn>3</mn><mi>d</mi></msqrt></mfrac></math>
    """
    return f"<math>{''.join(_Reader(formula).until(''))}</math>"


class _Reader:
    """Recursive descent: a formula is products between signs, a product atoms, some with scripts.

    What is read is a list of elements, so that whoever asked may put a row around it.
    """

    def __init__(self, formula: str):
        found = [(f.lastgroup or "", f) for f in TOKEN.finditer(formula.strip())]
        self.rest = [Token(kind, f[kind], len(f["gap"])) for kind, f in reversed(found)]
        self.ends: list[str] = []
        self.scripts = 0  # how deep in scripts: no fraction bars there

    def until(self, end: str) -> list[str]:
        """Up to the closing bracket, or the end of the text."""
        self.ends.append(end)
        made, before = [], END
        while self.next.text not in ("", end):
            token, atom = self.next, self._begins_atom()
            if token.gap > 1:
                made.append(QUAD)
            elif token.gap and (before.text == ":" or (before.text in ",;" and self._prose())):
                made.append(WORD if before.text == ":" else THIN)
            made += self._product() if atom else self._sign(unary=before.kind in ("sign", "end"))
            before = Token("atom", "") if atom else token
        self.ends.pop()
        return made

    def _product(self) -> list[str]:
        made = self._factors()
        while self.next.text == "/":  # one between spaces: `_factors` has taken the others
            self.rest.pop()
            above, below = _bare(made), _bare(self._factors())
            made = [f"<mfrac>{_row(above)}{_row(below)}</mfrac>"]
        return made

    def _factors(self) -> list[str]:
        made, prose = [], False
        while self.next.gap < 2 or not made:
            token = self.next
            if token.text == "·" or (token.text == "/" and (self.scripts or not token.gap)):
                made += self._sign(unary=False)
            elif self._begins_atom():
                either = prose or self._prose()
                if made and token.gap:
                    made.append(WORD if either else THIN)
                prose = self._prose()
                made += self._atom()
            else:
                break
        return made

    def _atom(self) -> list[str]:
        prose, (kind, text, _) = self._prose(), self.rest.pop()
        if text == "√":
            return [f"<msqrt>{''.join(self._argument())}</msqrt>"]
        if kind == "sign":
            made: str = self._group(text)
        elif kind == "code":
            made = f"<mtext><code>{escape(text.strip('`'))}</code></mtext>"
        elif kind == "number":
            made = f"<mn>{text}</mn>"
        elif text == "Σ":
            made = "<mo>∑</mo>"
        else:
            name, bar = escape(text.rstrip("\u0304")), text.endswith("\u0304")
            made = f"<mtext>{name}</mtext>" if prose else f"<mi>{name}</mi>"
            made = f"<mover>{made}<mo>¯</mo></mover>" if bar else made
        return [self._scripted(made, "under" if text == "Σ" else "sub")]

    def _group(self, opening: str) -> str:
        inner = self.until(CLOSING[opening])
        closing = self.rest.pop().text if self.rest else ""
        fences = [
            f'<mo form="{form}" fence="true" stretchy="true">{text}</mo>'
            for form, text in (("prefix", opening), ("postfix", closing))
        ]
        made = Parentheses(f"<mrow>{fences[0]}{''.join(inner)}{fences[1]}</mrow>")
        made.inner = inner
        return made if opening in "({" else str(made)

    def _scripted(self, base: str, low: str) -> str:
        below, above = [], []
        while not self.next.gap:
            kind, text, _ = self.next
            if kind in ("raised", "lowered"):
                self.rest.pop()
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
        kind = f"m{low * bool(below)}{('sup' if low == 'sub' else 'over') * bool(above)}"
        return f"<{kind}>{base}{''.join(_row(made) for made in (below, above) if made)}</{kind}>"

    def _argument(self) -> list[str]:
        """The argument of a script or a root: one atom, or a group in parentheses."""
        sign = self._sign(unary=True) if self.next.text == "−" else []
        return sign + _bare(self._atom()) if self._begins_atom() else sign

    def _sign(self, unary: bool) -> list[str]:
        text = escape(self.rest.pop().text)
        if text == ":":
            return ["<mtext>:</mtext>"]
        how = ' form="prefix"' if unary and text in "+−±" else ""
        return [f"<mo{how or TIGHT * (text == '/')}>{text}</mo>"]

    @property
    def next(self) -> Token:
        return self.rest[-1] if self.rest else END

    def _begins_atom(self) -> bool:
        kind, text, _ = self.next
        if kind == "sign":
            return (text in CLOSING or text == "√") and text != self.ends[-1]
        return kind in ("code", "word", "letter", "number")

    def _prose(self) -> bool:
        """True if the next word is prose, not a name; "a" before a word is an article."""
        if len(self.rest) < 2:
            return self.next.kind == "word"
        (kind, text, _), after = self.rest[-1], self.rest[-2]
        if kind == "letter":
            return text == "a" and after.kind == "word" and after.gap == 1 and not self.scripts
        touched = not after.gap and (after.text in TOUCHING or after.kind in ("raised", "lowered"))
        return kind == "word" and text not in FUNCTIONS and not touched


class Parentheses(str):
    """A group in parentheses; `inner` is the group without them."""

    inner: list[str]


def _bare(made: list[str]) -> list[str]:
    """Strip the parentheses if one pair encloses everything."""
    return made[0].inner if len(made) == 1 and isinstance(made[0], Parentheses) else made


def _row(made: list[str]) -> str:
    return made[0] if len(made) == 1 else f"<mrow>{''.join(made)}</mrow>"
