"""Compatibility with versions of torch, compilers, tracers and machines."""
