"""Analyses of stored studies beyond their plans: properties, bands of pairs, repetitions."""
