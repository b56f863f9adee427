"""A figure as the page reads it."""

import json

import pytest

from posenc.report import screen


def read(figure):
    """As the page reads it: JSON without NaN."""
    return json.loads(screen.plotly(figure).to_json(), parse_constant=pytest.fail)
