"""Figures as panels of marks: their data, their layout, and renderers to HTML and Matplotlib."""
