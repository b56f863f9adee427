"""Encodings that add a row of numbers to each embedding, before attention begins."""
