"""Tables on the terminal, drawn with rich."""

from posenc.report.terminal.benchmarks import benchmark as benchmark
from posenc.report.terminal.tables import card as card
from posenc.report.terminal.tables import catalog as catalog
from posenc.report.terminal.tables import comparison as comparison
from posenc.report.terminal.tables import inspection as inspection
from posenc.report.terminal.weights import weighing as weighing
