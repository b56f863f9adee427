"""Figures, one function each: from what was measured to the drawing, its words and its table.

screen.plotly(figures.curves(compare(["rope", "alibi"]))).show()
paper.save(figures.similarity("RoPE", between(RoPE(64), 64)), Path("rope.svg"))
"""

from posenc.report.figures.attention import attention as attention
from posenc.report.figures.attention import decomposition as decomposition
from posenc.report.figures.attention import shuffled as shuffled
from posenc.report.figures.benchmarks import growth as growth
from posenc.report.figures.benchmarks import ways as ways
from posenc.report.figures.comparing import card as card
from posenc.report.figures.comparing import costs as costs
from posenc.report.figures.comparing import curves as curves
from posenc.report.figures.comparing import order as order
from posenc.report.figures.comparing import properties as properties
from posenc.report.figures.comparing import rows as rows
from posenc.report.figures.moving import codes as codes
from posenc.report.figures.moving import paths as paths
from posenc.report.figures.moving import turning as turning
from posenc.report.figures.moving import vectors as vectors
from posenc.report.figures.positions import bound as bound
from posenc.report.figures.positions import decay as decay
from posenc.report.figures.positions import encoding as encoding
from posenc.report.figures.positions import peak as peak
from posenc.report.figures.positions import shift as shift
from posenc.report.figures.positions import similarity as similarity
from posenc.report.figures.reading import distances as distances
from posenc.report.figures.reading import heads as heads
from posenc.report.figures.reading import layers as layers
from posenc.report.figures.rotary import bands as bands
from posenc.report.figures.rotary import extensions as extensions
from posenc.report.figures.rotary import precision as precision
from posenc.report.figures.space import grids as grids
from posenc.report.figures.space import projection as projection
from posenc.report.figures.space import rotation as rotation
