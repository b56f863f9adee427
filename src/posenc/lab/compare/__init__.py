"""Comparisons of encodings on a text, close-ups of a few, and measurements of a real model."""
