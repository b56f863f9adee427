"""Encodings that add to the scores a number that depends on the distance."""
