"""Biases of content, each defined once."""
