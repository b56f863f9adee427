"""Comparisons of encodings on a text, details of one encoding, and measurements of a real model."""
