"""Analyses of stored studies for one paper: properties, bands of pairs, repetitions."""
