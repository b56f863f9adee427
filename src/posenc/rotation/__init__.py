"""Turning pairs of channels: the formula, its table of cosines and sines, its kernels."""
