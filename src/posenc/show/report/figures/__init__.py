"""Describe figures, one function each, from measured results.

screen.draw(figures.curves(compare(["rope", "alibi"]))).html
paper.save(figures.similarity("RoPE", between(RoPE(64), 64)), Path("rope.svg"))
"""

from posenc.show.report.figures.animations import codes as codes
from posenc.show.report.figures.animations import turning as turning
from posenc.show.report.figures.animations import vectors as vectors
from posenc.show.report.figures.attention import attention as attention
from posenc.show.report.figures.attention import compared as compared
from posenc.show.report.figures.attention import decomposition as decomposition
from posenc.show.report.figures.attention import shuffled as shuffled
from posenc.show.report.figures.benchmarks import growth as growth
from posenc.show.report.figures.benchmarks import ways as ways
from posenc.show.report.figures.comparison import card as card
from posenc.show.report.figures.comparison import costs as costs
from posenc.show.report.figures.comparison import curves as curves
from posenc.show.report.figures.comparison import lengths as lengths
from posenc.show.report.figures.comparison import order as order
from posenc.show.report.figures.comparison import properties as properties
from posenc.show.report.figures.comparison import rows as rows
from posenc.show.report.figures.places import places as places
from posenc.show.report.figures.plane import clouds as clouds
from posenc.show.report.figures.plane import grids as grids
from posenc.show.report.figures.plane import rotation as rotation
from posenc.show.report.figures.positions import angles as angles
from posenc.show.report.figures.positions import bias as bias
from posenc.show.report.figures.positions import bound as bound
from posenc.show.report.figures.positions import channels as channels
from posenc.show.report.figures.positions import decay as decay
from posenc.show.report.figures.positions import encoding as encoding
from posenc.show.report.figures.positions import peak as peak
from posenc.show.report.figures.positions import shift as shift
from posenc.show.report.figures.positions import similarity as similarity
from posenc.show.report.figures.real_model import distances as distances
from posenc.show.report.figures.real_model import heads as heads
from posenc.show.report.figures.real_model import layers as layers
from posenc.show.report.figures.rotary import bands as bands
from posenc.show.report.figures.rotary import dials as dials
from posenc.show.report.figures.rotary import extensions as extensions
from posenc.show.report.figures.rotary import models as models
from posenc.show.report.figures.rotary import precision as precision
from posenc.show.report.figures.rotary import stretch as stretch
