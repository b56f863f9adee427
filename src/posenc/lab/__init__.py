"""The laboratory: comparisons of encodings, and training studies."""
