"""Put results into words, the same on the terminal and on the page."""

from posenc.report.words.findings import CHANGES as CHANGES
from posenc.report.words.findings import METHODS as METHODS
from posenc.report.words.findings import SEEN as SEEN
from posenc.report.words.findings import SHORT as SHORT
from posenc.report.words.findings import basis as basis
from posenc.report.words.findings import blocks as blocks
from posenc.report.words.findings import brief as brief
from posenc.report.words.findings import change as change
from posenc.report.words.findings import count as count
from posenc.report.words.findings import duration as duration
from posenc.report.words.findings import facts as facts
from posenc.report.words.findings import growth as growth
from posenc.report.words.findings import label as label
from posenc.report.words.findings import masked as masked
from posenc.report.words.findings import model as model
from posenc.report.words.findings import moved as moved
from posenc.report.words.findings import noise as noise
from posenc.report.words.findings import runs as runs
from posenc.report.words.findings import sentence as sentence
from posenc.report.words.findings import times as times
from posenc.report.words.findings import tokens as tokens
from posenc.report.words.findings import turning as turning
from posenc.report.words.findings import verdict as verdict
from posenc.report.words.findings import verdict_of as verdict_of
from posenc.report.words.findings import width as width
from posenc.report.words.guide import guide as guide
