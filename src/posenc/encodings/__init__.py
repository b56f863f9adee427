"""Positional encodings, one per file: the formula, the class, and a card with its paper."""
