"""Encodings that add a vector to each embedding, before attention."""
