"""A figure of the steps of attention that each encoding changes."""

from collections.abc import Mapping, Sequence

from posenc.core.encoding import HOOK_PLACES
from posenc.show.report.drawing.figure import BLUE, GREY, Figure, FigureNumbers, Panel
from posenc.show.report.drawing.marks import Line, Points

# Places in attention, from its input to its output
PLACES = [*dict.fromkeys(HOOK_PLACES.values())]


def places(acts_on: Mapping[str, Sequence[str]]) -> Figure:
    """Draw one row for each encoding, with a dot at each step of attention that it changes.

    - `acts_on`: names of each encoding's hooks
    """
    by_name = {
        name: sorted({PLACES.index(HOOK_PLACES[hook]) for hook in acting})
        for name, acting in acts_on.items()
    }
    order = sorted(
        by_name,
        key=lambda name: (by_name[name] or [len(PLACES)], len(by_name[name])),
    )
    joined = [(n, by_name[name]) for n, name in enumerate(order) if len(by_name[name]) > 1]
    marks = [
        *(Line([at[0], at[-1]], [n, n], "", GREY, width=1.5) for n, at in joined),
        Points(
            [place for name in order for place in by_name[name]],
            [n for n, name in enumerate(order) for _ in by_name[name]],
            colour=BLUE,
            size=11,
        ),
    ]
    counts = ", ".join(
        f"{place} {sum(n in at for at in by_name.values())}" for n, place in enumerate(PLACES)
    )
    nowhere = [name for name in order if not by_name[name]]
    return Figure(
        "Where in attention each encoding acts",
        [
            Panel(
                "",
                marks,
                x_names=PLACES,
                y_names=order,
                x_range=(-0.5, len(PLACES) - 0.5),
                y_down=True,
            )
        ],
        f"Five steps of attention, from its input to its output, and the number of the"
        f" {len(by_name)} encodings that act there: {counts}. Nowhere:"
        f" {', '.join(nowhere) or 'none'}.",
        height=19 * len(by_name),
        listed=FigureNumbers(
            ["encoding", *PLACES],
            [
                [name, *("✓" if n in by_name[name] else "" for n in range(len(PLACES)))]
                for name in order
            ],
        ),
    )
