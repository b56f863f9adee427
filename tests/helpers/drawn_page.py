"""Read values back from the HTML of a figure: positions in its panels, and bytes of its images."""

import base64
import io
import re
from types import SimpleNamespace
from xml.etree import ElementTree

from PIL import Image

from posenc.show.report.drawing import html

OUTSIDE = re.compile(r"[ML](\S+?) ([^MLZ]+)")


def read(figure):
    """Draw a figure as HTML; return its panels with the values and texts that they show."""
    root = ElementTree.fromstring(f"<div>{html.to_html(figure)}</div>")
    return [panel(one) for one in root.iter("div") if one.get("class") in ("panel", "panel square")]


def panel(element):
    (plot,) = [one for one in element.iter("svg") if one.get("class") == "plot"]
    x, y = (scale(plot.get(f"data-{name}")) for name in "xy")
    found = SimpleNamespace(plot=plot, lines=[], bands=[], areas=[], stems=[], points=[], images=[])
    found.style, found.texts = element.get("style"), [one.text for one in plot.iter("text")]
    for path in plot.iter("path"):
        kind = {"line": "lines", "band": "bands", "area": "areas", "stem": "stems"}
        if path.get("class") in kind:
            corners = [
                (x(float(at) / 1000), y(1 - float(height) / 1000))
                for at, height in OUTSIDE.findall(path.get("d").replace("V", "L0 "))
            ]
            getattr(found, kind[path.get("class")]).append((path.get("data-name", ""), corners))
    for group in plot.iter("g"):
        if group.get("class") == "points":
            places = [(x(share(one, "x")), y(1 - share(one, "y"))) for one in group]
            found.points.append((group.get("data-name", ""), places))
    for image in plot.iter("image"):
        found.images.append(cells(image))
    found.arrows = [
        [
            x(share(line, "x1")),
            y(1 - share(line, "y1")),
            x(share(line, "x2")),
            y(1 - share(line, "y2")),
        ]
        for line in plot.iter("line")
    ]
    return found


def scale(ends):
    low, high, *log = ends.split(" ")
    low, high = float(low), float(high)
    if log:
        return lambda part: low * (high / low) ** part
    return lambda part: low + part * (high - low)


def share(element, name):
    value = element.get(name) or element.get(f"c{name}")
    assert value.endswith("%")
    return float(value[:-1]) / 100


def cells(image):
    """Return the values of a heat map's image, row by row from the top; None for empty cells."""
    kind, data = image.get("href").split(",")
    assert kind == "data:image/png;base64"
    low, high = map(float, image.get("data-span").split(" "))
    picture = Image.open(io.BytesIO(base64.b64decode(data)))
    levels, wide = picture.tobytes(), picture.width
    values = [None if n == 255 else low + n / 254 * (high - low) for n in levels]
    return [values[at : at + wide] for at in range(0, len(values), wide)]
