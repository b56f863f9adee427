"""Helpers that have nothing to do with positions: arguments, names, text, files."""
