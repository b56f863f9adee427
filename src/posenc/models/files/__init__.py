"""Strict readers for the files of a model, any of which may be malicious."""
