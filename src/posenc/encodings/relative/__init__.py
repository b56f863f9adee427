"""Encodings whose scores mix distance with content, and those that add to the values."""
