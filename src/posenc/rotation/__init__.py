"""Rotation of pairs of channels: formula, table of cosines and sines, and kernels."""
