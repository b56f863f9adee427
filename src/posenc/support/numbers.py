"""Format numbers for readers: 16,370 and 6·10⁻⁸ instead of 1.637e+04 and 6e-08."""

from math import inf
from typing import SupportsFloat

RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def number(value: SupportsFloat, digits: int = 3) -> str:
    """Format a number with `digits` significant digits: "16,370", or "6·10⁻⁸" if small or large.

    >>> number(16370.4, 4), number(-0.4812), number(6.1e-8, 1), number(2.54e9), number(1e12)
    ('16,370', '−0.481', '6·10⁻⁸', '2.54·10⁹', '10¹²')
    """
    value = float(value)
    if value != value:
        return "not a number"
    sign, value = "−" * (value < 0), abs(value)
    if value == inf:
        return f"{sign}∞"
    first, exponent = f"{value:.{digits - 1}e}".split("e")
    power = int(exponent)
    if value and not -4 <= power < 7:
        first, raised = _short(first), f"10{str(power).translate(RAISED)}"
        return sign + (raised if first == "1" else f"{first}·{raised}")
    return sign + _short(f"{float(f'{first}e{power}'):,.{max(0, digits - 1 - power)}f}")


def _short(text: str) -> str:
    """Remove trailing zeros after the decimal point of a formatted number."""
    return text.rstrip("0").rstrip(".") if "." in text else text
