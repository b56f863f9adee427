"""Encodings plugged into models of transformers."""
