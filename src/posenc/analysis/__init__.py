"""Functions that measure encodings on real text, and the weights of trained models."""
