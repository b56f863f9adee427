"""Encodings whose scores depend on both distance and content, or that change the values."""
