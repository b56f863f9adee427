"""Attention with any encoding: `attend`, a layer and a block, and the ways to compute it."""
