"""Descriptions of figures as marks in panels, their layout and numbers, and two renderers."""
