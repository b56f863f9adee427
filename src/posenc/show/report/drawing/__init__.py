"""Figures described for both renderers: marks in panels, their layout, their numbers as a table."""
