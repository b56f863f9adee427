"""Figures of what was analysed, a function each: of positions, rotations, attention, the plane."""
