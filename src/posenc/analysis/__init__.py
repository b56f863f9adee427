"""Measure encodings on real text, and weights of models: pure functions on tensors."""
