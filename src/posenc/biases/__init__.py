"""Biases of scores, one per file, with their dense, pairwise and tiled forms."""
