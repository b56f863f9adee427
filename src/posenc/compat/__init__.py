"""Differences between versions of torch, compilers and machines."""
