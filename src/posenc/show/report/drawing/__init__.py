"""Figures as panels of marks: their data, their layout, and renderers for HTML and Matplotlib."""
