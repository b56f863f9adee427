"""Measurements of what encodings do to real text: pure functions on tensors, and `compare`."""
