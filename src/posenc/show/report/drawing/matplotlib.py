"""Draw figures for print with Matplotlib, as PNG, SVG or PDF."""

from functools import singledispatch
from io import BytesIO
from math import ceil, log10, nan
from pathlib import Path
from textwrap import wrap
from typing import Any
from warnings import catch_warnings, filterwarnings

from matplotlib import rc_context
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LinearSegmentedColormap, Normalize
from matplotlib.figure import Figure as Drawn
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import MaxNLocator, NullLocator

from posenc.show.report.drawing.axis import at_whole_numbers
from posenc.show.report.drawing.figure import GREY, VERMILION, Figure, Mark, Panel, Values, short
from posenc.show.report.drawing.marks import Area, Arrows, Band, Heat, Line, Points, Rule, Stems
from posenc.show.report.drawing.panel_layout import LINE, PanelLayout, legend_names
from posenc.show.report.output_folder import FIGURE_MARK
from posenc.support.text import printable

INCH = 100  # pixels of the screen
WIDTH = 720  # pixels, of a page of paper
WIDE, NARROWEST, WIDEST = 183, 40, 1_000  # millimetres: a page, and the smallest and largest width
TICK = 11  # pixels for a name along an axis
TITLE = 30  # pixels above a figure
DASHES = {"solid": "-", "dash": (0, (5, 2.5)), "dot": (0, (1.2, 2)), "dashdot": (0, (6, 2, 1.2, 2))}
MARKERS = {
    "": "",
    "circle": "o",
    "diamond": "D",
    "square": "s",
    "triangle": "^",
    "x": "x",
    "dash": "_",
}
SIGNED = LinearSegmentedColormap.from_list("signed", ["#1f83c4", "#ffffff", VERMILION])
UNSIGNED = LinearSegmentedColormap.from_list("unsigned", ["#ffffff", "#1f83c4"])
SIDES: dict[str, dict[str, Any]] = {  # placement of a label, by side of its mark
    "above": {"xytext": (0, 4), "ha": "center"},
    "right above": {"xytext": (3, 3), "ha": "left"},
    "left below": {"xytext": (-3, -3), "ha": "right", "va": "top"},
    "right": {"xytext": (4, 0), "ha": "left", "va": "center"},
    "middle": {"xytext": (0, 0), "ha": "center", "va": "center"},
}
OFFSET: dict[str, Any] = {"textcoords": "offset points", "fontsize": 7, "annotation_clip": False}
STYLE: dict[Any, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 8,
    "axes.titlesize": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.6,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e4e6e9",
    "grid.linewidth": 0.6,
    "figure.titlesize": 11,
    "pdf.fonttype": 42,
    "svg.hashsalt": "posenc",
    "text.parse_math": False,
}


def save(figure: Figure, path: Path, width: float = WIDE) -> None:
    """Write the figure to a .png, .svg or .pdf file, with its title and alternative text.

    `width` is in millimetres: 183 for a page, 85 to 89 for a column.
    """
    write(figure, path, path.suffix.removeprefix("."), width)


def write(figure: Figure, file: Path | BytesIO, kind: str, width: float = WIDE) -> None:
    """Write the figure to a file or a buffer as "png", "svg" or "pdf"."""
    drawn = to_matplotlib(figure, width)
    described = "Subject" if kind == "pdf" else "Description"
    maker = "Software" if kind == "png" else "Creator"
    metadata = {"Title": printable(figure.title, 200), described: printable(figure.alt, 2000)}
    metadata |= {maker: FIGURE_MARK}
    undated = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(kind, {})
    with rc_context(STYLE), catch_warnings():
        # The font draws a box where it has no glyph
        filterwarnings("ignore", "Glyph .* missing")
        drawn.savefig(file, format=kind, dpi=2 * INCH, metadata=metadata | undated)


def to_matplotlib(figure: Figure, width: float = WIDE) -> Drawn:
    """Draw the figure on white, `width` millimetres wide."""
    if not NARROWEST <= width <= WIDEST:
        raise ValueError(
            f"`width` must be from {NARROWEST} to {WIDEST} millimetres, got {width}. Use 85 for a"
            f" column, {WIDE} for a page."
        )
    pixels = round(width / 25.4 * INCH)
    count = min(figure.columns, max(1, round(figure.columns * pixels / WIDTH)))
    at = PanelLayout(figure, count, pixels)
    title = wrap(_safe(figure.title), max(12, pixels // 8)) or [""]
    above = TITLE + LINE * (len(title) - 1)
    inside = at.rows * at.row + (at.rows - 1) * at.between + at.head + at.under
    legend, columns = _legend_size(legend_names(figure), pixels)
    high = inside + above + legend
    with rc_context(STYLE):
        engine = ConstrainedLayoutEngine(rect=(0, 0, 1, inside / high))
        drawn = Drawn(figsize=(pixels / INCH, high / INCH), layout=engine)
        drawn.text(0.01, 1 - 6 / high, "\n".join(title), va="top", fontsize=11)
        axes = drawn.subplots(at.rows, count, squeeze=False).flatten().tolist()
        for spare in axes[len(figure.panels) :]:
            spare.set_axis_off()
        for n, (panel, ax) in enumerate(zip(figure.panels, axes, strict=False)):
            for mark in panel.marks:
                draw_mark(mark, ax)
            _finish(panel, n, at, ax)
            for heat in [mark for mark in panel.marks if isinstance(mark, Heat)]:
                if heat.bar and not at.shared:
                    drawn.colorbar(_colours(heat), ax=ax, label=heat.unit, pad=0.02)
        if at.heats and at.shared and at.heats[0].bar:
            drawn_on = axes[: len(figure.panels)]
            drawn.colorbar(_colours(at.heats[0]), ax=drawn_on, label=at.heats[0].unit, pad=0.02)
        if legend:
            drawn.legend(
                **_legend(legend_names(figure), axes),
                ncols=columns,
                bbox_to_anchor=(0, 1 - above / high),
                loc="upper left",
                frameon=False,
            ).set_in_layout(False)
        with catch_warnings():
            # The font draws a box where it has no glyph
            filterwarnings("ignore", "Glyph .* missing")
            drawn.draw_without_rendering()
            # Lay out again, because ticks have their sizes only now
            engine.execute(drawn)
        drawn.set_layout_engine("none")
    return drawn


@singledispatch
def draw_mark(mark: Mark, ax: Axes) -> None:
    raise NotImplementedError(
        f"Matplotlib figures must have a function that draws {type(mark).__name__}, got none."
        " Register one with `draw_mark`."
    )


@draw_mark.register
def _(mark: Line, ax: Axes) -> None:
    ax.plot(
        _numbers(mark.x),
        _numbers(mark.y),
        color=mark.colour,
        linestyle=DASHES[mark.dash],
        marker=MARKERS[mark.marker],
        markersize=3.5,
        markevery=1 if len(mark.x) <= 40 else ceil(len(mark.x) / 12),
        linewidth=0.7 * mark.width,
        label=_safe(mark.legend),
    )
    if mark.direct:
        points = zip(short(mark.x), short(mark.y), strict=True)
        *_, end = [point for point in points if None not in point]
        ax.annotate(_safe(mark.name), end, (4, 0), va="center", **OFFSET)


@draw_mark.register
def _(mark: Stems, ax: Axes) -> None:
    x, y = _numbers(mark.x), _numbers(mark.y)
    ax.vlines(x, 0, y, color=mark.colour, linewidth=1.2)
    _plot_markers(mark, 3.5, ax)


@draw_mark.register
def _(mark: Area, ax: Axes) -> None:
    style: dict[str, Any] = {"color": mark.colour, "alpha": 0.22 if mark.faint else 1}
    for polygon in _polygons(mark):
        ax.fill(*zip(*polygon, strict=True), linewidth=0, **style)
    ax.fill([], [], linewidth=0, label=_safe(mark.name), **style)


@draw_mark.register
def _(mark: Band, ax: Axes) -> None:
    bounds = _numbers(mark.low), _numbers(mark.high)
    look: dict[str, Any] = {"color": mark.colour, "alpha": 0.22, "linewidth": 0}
    ax.fill_between(_numbers(mark.x), *bounds, label=_safe(mark.name), **look)


@draw_mark.register
def _(mark: Points, ax: Axes) -> None:
    if mark.marker:
        _plot_markers(mark, 0.55 * mark.size, ax, clip_on=False)
    for x, y, label in zip(mark.x, mark.y, mark.labels, strict=False):
        if x is not None and y is not None:
            ax.annotate(_safe(label), (x, y), **SIDES[mark.side], **OFFSET)


@draw_mark.register
def _(mark: Arrows, ax: Axes) -> None:
    style: dict[str, Any] = {"arrowstyle": "-|>", "color": mark.colour, "shrinkA": 0, "shrinkB": 0}
    style |= {"linestyle": DASHES[mark.dash], "mutation_scale": 9}
    for x, y, to_x, to_y in zip(mark.x, mark.y, mark.to_x, mark.to_y, strict=True):
        ax.annotate("", (to_x, to_y), (x, y), arrowprops=style)
    ax.plot([], [], color=mark.colour, linestyle=DASHES[mark.dash], label=_safe(mark.name))
    for x, y, label in zip(mark.to_x, mark.to_y, mark.labels, strict=False):
        outward = {"xytext": (0, 4 if y >= 0 else -10), "ha": "center"}
        ax.annotate(_safe(label), (x, y), **outward, **OFFSET)
    ax.update_datalim([*zip(mark.to_x, mark.to_y, strict=True)])


@draw_mark.register
def _(mark: Rule, ax: Axes) -> None:
    along = ax.axvline if mark.axis == "x" else ax.axhline
    along(mark.at, color=GREY, linestyle=DASHES[mark.dash], linewidth=1)
    upright = mark.axis == "x"
    ax.annotate(
        _safe(mark.name),
        (mark.at, 1) if upright else (0, mark.at),
        (-2, 0) if upright else (2, 1.5),
        xycoords=("data", "axes fraction") if upright else ("axes fraction", "data"),
        textcoords="offset points",
        rotation=90 if upright else 0,
        ha="right" if upright else "left",
        va="top" if upright else "bottom",
        fontsize=7,
        bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 0.8},
    )


@draw_mark.register
def _(mark: Heat, ax: Axes) -> None:
    low, high = mark.span
    ax.imshow(
        [_numbers(row) for row in mark.z],
        cmap=SIGNED if mark.signed else UNSIGNED,
        vmin=low,
        vmax=high,
        extent=(*mark.ends("x"), *mark.ends("y")),
        origin="lower",
        interpolation="nearest",
        aspect="auto",
    )
    if mark.digits is not None:
        _write_numbers(mark, ax)


def _plot_markers(mark: Stems | Points, size: float, ax: Axes, **more: Any) -> None:
    look = {"color": mark.colour, "linestyle": "", "marker": MARKERS[mark.marker]}
    named = {"markersize": size, "label": _safe(mark.name)}
    ax.plot(_numbers(mark.x), _numbers(mark.y), **look, **named, **more)


def _polygons(mark: Area) -> list[list[tuple[float, float]]]:
    polygons: list[list[tuple[float, float]]] = [[]]
    for x, y in zip(short(mark.x), short(mark.y), strict=True):
        if x is None or y is None:
            polygons.append([])
        else:
            polygons[-1].append((x, y))
    return [polygon for polygon in polygons if polygon]


def _write_numbers(mark: Heat, ax: Axes) -> None:
    """Write numbers into the cells of a heat map, in black or white."""
    # The type stubs of matplotlib accept only arrays
    colours: Any = _colours(mark)
    for y, row in zip(mark.y, mark.z, strict=True):
        for x, value in zip(mark.x, row, strict=True):
            if value is not None:
                red, green, blue, _ = colours.to_rgba(value)
                light = 0.299 * red + 0.587 * green + 0.114 * blue > 0.5
                look: dict[str, Any] = {"color": "black" if light else "white", "fontsize": 5.5}
                ax.text(x, y, f"{value:.{mark.digits}f}", ha="center", va="center", **look)


def _finish(panel: Panel, n: int, at: PanelLayout, ax: Axes) -> None:
    ax.set_title("\n".join(map(_safe, at.title(n))))
    ax.set_xlabel("\n".join(map(_safe, at.x_title(n))))
    ax.set_ylabel(_safe(at.y_title(n)))
    ax.set_xscale("log" if panel.x_log else "linear")
    ax.set_yscale("log" if panel.y_log else "linear")
    whole_x, whole_y = at_whole_numbers(panel, "x"), at_whole_numbers(panel, "y")
    for axis, wholly, log, ticks, named, room, shown in (
        (ax.xaxis, whole_x, panel.x_log, panel.x_ticks, panel.x_names, at.column, at.x_names(n)),
        (ax.yaxis, whole_y, panel.y_log, panel.y_ticks, panel.y_names, at.row, at.y_names(n)),
    ):
        if log:
            axis.set_major_formatter(_power)
        elif wholly:
            axis.set_major_locator(MaxNLocator("auto", steps=[1, 2, 5, 10], integer=True))
        if ticks:
            axis.set_ticks(list(ticks), [f"{tick:g}" for tick in ticks])
            axis.set_minor_locator(NullLocator())
        if named:
            labelled = range(0, len(named), ceil(len(named) * TICK / room))
            axis.set_ticks([*labelled], [_over_lines(named[k]) if shown else "" for k in labelled])
    if panel.x_names:
        ax.tick_params(axis="x", rotation=90)
    if panel.x_range:
        ax.set_xlim(*panel.x_range)
    elif panel.x_names:
        ax.set_xlim(-0.5, len(panel.x_names) - 0.5)
    if panel.y_range:
        ax.set_ylim(*panel.y_range)
    elif panel.y_names:
        ax.set_ylim(-0.5, len(panel.y_names) - 0.5)
    if panel.y_down:
        ax.invert_yaxis()
    if panel.square:
        ax.set_aspect("equal")
    if panel.bare or any(isinstance(mark, Heat) for mark in panel.marks):
        ax.grid(False)
    if panel.bare:
        ax.tick_params(length=0, labelbottom=bool(panel.x_names), labelleft=bool(panel.y_names))
        ax.spines[:].set_visible(False)


def _legend(wanted: list[str], axes: list[Axes]) -> dict[str, Any]:
    """Return the names and handles of the figure's legend.

    If several panels have the same name, the handle is that of the first.
    """
    handles: dict[str, Artist] = {}
    for ax in axes:
        for handle, label in zip(*ax.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    labels = [_safe(name) for name in wanted]
    return {"handles": [handles[label] for label in labels], "labels": labels}


def _legend_size(wanted: list[str], pixels: int) -> tuple[float, int]:
    """Return the height of the legend in pixels, and the number of its columns."""
    if not wanted:
        return 0, 1
    columns = max(1, int(pixels // (6 * max(map(len, wanted)) + 50)))
    return LINE * ceil(len(wanted) / columns) + 6, columns


def _colours(heat: Heat) -> ScalarMappable:
    return ScalarMappable(Normalize(*heat.span), SIGNED if heat.signed else UNSIGNED)


def _power(value: float, _: float) -> str:
    """Format a tick of a logarithmic axis: 10⁴, 0.01, 200."""
    power = log10(value)
    if abs(power) < 4 or power != round(power):
        return f"{value:g}"
    return "10" + str(round(power)).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))


def _numbers(values: Values) -> list[float]:
    return [nan if value is None else value for value in short(values)]


def _over_lines(text: str) -> str:
    return "\n".join(map(_safe, text.split("\n")))


def _safe(text: str) -> str:
    return printable(text, 200)
