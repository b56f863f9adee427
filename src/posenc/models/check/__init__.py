"""Check a model: faults of its config, what its files differ in, its loss as it is read."""
