"""Describe figures, one function each, from measured results.

screen.draw(figures.curves(compare(["rope", "alibi"]))).html
paper.save(figures.similarity("RoPE", between(RoPE(64), 64)), Path("rope.svg"))
"""

from posenc.report.figures.animations import codes as codes
from posenc.report.figures.animations import turning as turning
from posenc.report.figures.animations import vectors as vectors
from posenc.report.figures.attention import attention as attention
from posenc.report.figures.attention import compared as compared
from posenc.report.figures.attention import decomposition as decomposition
from posenc.report.figures.attention import shuffled as shuffled
from posenc.report.figures.benchmarks import growth as growth
from posenc.report.figures.benchmarks import ways as ways
from posenc.report.figures.comparison import card as card
from posenc.report.figures.comparison import costs as costs
from posenc.report.figures.comparison import curves as curves
from posenc.report.figures.comparison import lengths as lengths
from posenc.report.figures.comparison import order as order
from posenc.report.figures.comparison import properties as properties
from posenc.report.figures.comparison import rows as rows
from posenc.report.figures.places import places as places
from posenc.report.figures.plane import clouds as clouds
from posenc.report.figures.plane import grids as grids
from posenc.report.figures.plane import rotation as rotation
from posenc.report.figures.positions import angles as angles
from posenc.report.figures.positions import bias as bias
from posenc.report.figures.positions import bound as bound
from posenc.report.figures.positions import channels as channels
from posenc.report.figures.positions import decay as decay
from posenc.report.figures.positions import encoding as encoding
from posenc.report.figures.positions import peak as peak
from posenc.report.figures.positions import shift as shift
from posenc.report.figures.positions import similarity as similarity
from posenc.report.figures.real_model import distances as distances
from posenc.report.figures.real_model import heads as heads
from posenc.report.figures.real_model import layers as layers
from posenc.report.figures.rotary import bands as bands
from posenc.report.figures.rotary import dials as dials
from posenc.report.figures.rotary import extensions as extensions
from posenc.report.figures.rotary import models as models
from posenc.report.figures.rotary import precision as precision
from posenc.report.figures.rotary import stretch as stretch
