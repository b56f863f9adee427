"""Figures for the screen, as HTML and SVG that any width fits."""

from posenc.show.report.screen.figure import Drawn as Drawn
from posenc.show.report.screen.figure import draw as draw
