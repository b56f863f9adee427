"""Encodings that turn queries and keys, so that their dot product sees the offset between them."""
