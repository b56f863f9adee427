"""A pytest plugin, `-p recorder`, which labels coverage.py's data with the running test."""

import importlib


def pytest_runtest_logstart(nodeid: str) -> None:
    importlib.import_module("coverage").Coverage.current().switch_context(nodeid)
