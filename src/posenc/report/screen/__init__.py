"""Figures for the screen, as HTML and SVG that any width fits."""

from posenc.report.screen.figure import Drawn as Drawn
from posenc.report.screen.figure import draw as draw
