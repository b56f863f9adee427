"""Replacement of positional encodings in models of transformers, and safe loading of models."""
