"""Measurements of encodings on real text, and of weights of models, as functions of tensors."""
