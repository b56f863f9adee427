"""Neutral figures: marks in panels, the same for screen and paper, and their numbers as a table."""
