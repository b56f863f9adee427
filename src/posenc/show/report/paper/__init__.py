"""Figures for paper, by Matplotlib: PNG, SVG and PDF."""

from posenc.show.report.paper.figure import WIDE as WIDE
from posenc.show.report.paper.figure import matplotlib as matplotlib
from posenc.show.report.paper.figure import save as save
from posenc.show.report.paper.figure import write as write
