"""Whole studies: encodings compared, a few of them looked at closely, a real model that reads."""
