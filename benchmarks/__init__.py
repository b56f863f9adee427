"""Benchmarks of posenc and other libraries in one run, as ratios to a limit such as a copy."""
