"""Figures for the screen, by plotly."""

from posenc.report.screen.figure import plotly as plotly
