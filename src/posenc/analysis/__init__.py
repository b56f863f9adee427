"""Functions that measure encodings on real text, and functions that measure trained weights."""
