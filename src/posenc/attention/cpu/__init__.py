"""Attention on the CPU: computation in tiles, calls of torch's CPU kernel, and attention sinks."""
