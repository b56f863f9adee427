"""Figures, one function each: from what was measured to the drawing, its words and its table.

screen.plotly(figures.curves(compare(["rope", "alibi"]))).show()
paper.save(figures.similarity("RoPE", between(RoPE(64), 64)), Path("rope.svg"))
"""

from posenc.report.figures.comparing import card as card
from posenc.report.figures.comparing import costs as costs
from posenc.report.figures.comparing import curves as curves
from posenc.report.figures.comparing import order as order
from posenc.report.figures.comparing import properties as properties
from posenc.report.figures.comparing import rows as rows
from posenc.report.figures.rotary import bands as bands
