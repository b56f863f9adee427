"""Positional encodings, one per file: formula, class and card."""
