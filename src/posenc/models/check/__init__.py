"""Checks of a model: faults of its config, differences between its files, and its loss."""
