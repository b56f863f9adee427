"""Functions that make figures of analyses: positions, rotations, attention, points in a plane."""
