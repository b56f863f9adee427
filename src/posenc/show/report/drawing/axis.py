"""Compute the ends, ticks and tick labels of an axis."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, floor, isfinite, log10

from posenc.show.report.drawing.figure import Name, Panel
from posenc.support.numbers import RAISED

MARGIN = 0.04  # free share of an axis at each end, if its range follows from its values


@dataclass(frozen=True)
class Axis:
    """An axis from `low` to `high`; `high` is below `low` if the axis runs downwards."""

    low: float
    high: float
    log: bool
    ticks: Sequence[tuple[float, str]]

    def share(self, value: float) -> float:
        """Return where a value lies on the axis, from 0 at its beginning to 1 at its end.

        >>> Axis(1, 100, True, ()).share(10)
        0.5
        """
        low, high = (log10(self.low), log10(self.high)) if self.log else (self.low, self.high)
        return ((log10(value) if self.log else value) - low) / (high - low)


def axis(panel: Panel, name: Name, most: int) -> Axis:
    """Make the x or y axis of a panel.

    - `most`: greatest number of ticks
    """
    log = panel.x_log if name == "x" else panel.y_log
    names = panel.x_names if name == "x" else panel.y_names
    fixed = panel.x_range if name == "x" else panel.y_range
    low, high = fixed or _extent(panel, name, log, len(names))
    ticks = panel.x_ticks if name == "x" else panel.y_ticks
    if names:
        places = range(0, len(names), ceil(len(names) / most))
        written = [(float(place), names[place]) for place in places]
    elif panel.bare:
        written = []
    else:
        least = 1.0 if high - low >= 2 and at_whole_numbers(panel, name) else 0.0
        at = [value for value in ticks if low <= value <= high]
        if len(at) < 2:
            at = _powers(low, high, most) if log else _steps(low, high, most, least)
        written = [(value, tick_text(value, log)) for value in at if low <= value <= high]
    down = name == "y" and panel.y_down
    return Axis(high, low, log, written) if down else Axis(low, high, log, written)


def at_whole_numbers(panel: Panel, name: Name) -> bool:
    """Test whether all data along an axis are whole numbers. Ticks then need no fractions."""
    data = [mark for mark in panel.marks if not mark.guide]
    values = [value for mark in data for value in mark.along(name) if value is not None]
    return bool(values) and all(isfinite(value) and value == round(value) for value in values)


def tick_text(value: float, log: bool) -> str:
    """Format a tick, as a power of ten on a logarithmic axis.

    >>> tick_text(20000, False), tick_text(10000, True), tick_text(-0.5, False)
    ('20,000', '10⁴', '−0.5')
    """
    power = log10(value) if log else 0.0
    if log and abs(power) >= 4 and power == round(power):
        return f"10{str(round(power)).translate(RAISED)}"
    is_whole = value == round(value) and abs(value) < 1e7
    return (f"{value:,.0f}" if is_whole else f"{value:.6g}").replace("-", "−")


def _extent(panel: Panel, name: Name, log: bool, names: int) -> tuple[float, float]:
    """Return the range of an axis that contains all marks.

    There is a margin at both ends, unless a mark such as a heat map fills the panel.
    """
    if names:
        return -0.5, names - 0.5
    if ends := next((ends for mark in panel.marks if (ends := mark.ends(name))), None):
        return ends
    values = [v for mark in panel.marks for v in mark.along(name) if v is not None and isfinite(v)]
    values = [v for v in values if v > 0] if log else values
    low, high = min(values, default=1.0), max(values, default=1.0)
    if log:
        room = max((high / low) ** MARGIN, 1.05)
        return low / room, high * room
    room = MARGIN * (high - low) or 0.05 * abs(high) or 0.5
    return low - room, high + room


def _steps(low: float, high: float, most: int, least: float = 0.0) -> list[float]:
    """Return at most `most` ticks that are multiples of a step such as 1, 2, 5, 10 or 20.

    >>> _steps(0, 128, 6), _steps(0, 3, 10, least=1)
    ([0.0, 50.0, 100.0], [0.0, 1.0, 2.0, 3.0])
    """
    unit = max(least, 10.0 ** floor(log10((high - low) / most)))
    for step in (unit, 2 * unit, 5 * unit, 10 * unit):
        multiples = range(ceil(low / step), floor(high / step) + 1)
        if len(multiples) <= most:
            break
    return [float(f"{n * step:.12g}") for n in multiples]


def _powers(low: float, high: float, most: int) -> list[float]:
    """Return at most `most` ticks for a logarithmic axis: powers of ten, and 2 and 5 times these.

    >>> _powers(0.9, 60, 6), _powers(1, 1e12, 6)
    ([1.0, 2.0, 5.0, 10.0, 20.0, 50.0], [1.0, 1000.0, 1000000.0, 1000000000.0, 1000000000000.0])
    """
    powers = range(floor(log10(low)), ceil(log10(high)) + 1)
    for parts in ((1, 2, 5), (1, 3), (1,)):
        ticks = [part * 10.0**power for power in powers for part in parts]
        ticks = [float(f"{value:.6g}") for value in ticks if low <= value <= high]
        if len(ticks) <= most:
            return ticks if len(ticks) > 1 else _steps(low, high, most)
    step = ceil(len(powers) / most)
    return [10.0**power for power in powers if power % step == 0 and low <= 10.0**power <= high]
