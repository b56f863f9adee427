"""Attention with any encoding: `attend`, one layer, and the ways to compute it."""
