"""Attention on the CPU: the engine for tiles, torch's CPU kernel, and sinks."""
