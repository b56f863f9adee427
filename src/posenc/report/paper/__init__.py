"""Figures for paper, by Matplotlib: PNG, SVG and PDF."""

from posenc.report.paper.figure import WIDE as WIDE
from posenc.report.paper.figure import matplotlib as matplotlib
from posenc.report.paper.figure import save as save
from posenc.report.paper.figure import write as write
