"""Test vectors: numbers that any implementation of positional encodings can be held against."""
