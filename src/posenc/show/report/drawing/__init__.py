"""Figures described once: marks in panels, their layout, their numbers; and both renderers."""
