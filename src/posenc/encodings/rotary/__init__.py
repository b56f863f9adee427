"""Encodings that rotate queries and keys, so that their dot product depends on the offset."""
