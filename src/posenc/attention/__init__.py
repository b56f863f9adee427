"""Attention with any encoding: `attend`, a layer, a block, and their implementations."""
