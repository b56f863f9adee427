"""A plugin of pytest, `-p recorder`: coverage.py names what it records after the test that runs."""

import importlib


def pytest_runtest_logstart(nodeid: str) -> None:
    importlib.import_module("coverage").Coverage.current().switch_context(nodeid)
