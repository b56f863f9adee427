"""Figures, one function each: from what was measured to the drawing, its words and its table.

    screen.plotly(figures.curves(compare(["rope", "alibi"]))).show()
    paper.save(figures.similarity("RoPE", between(RoPE(64), 64)), Path("rope.svg"))
"""
