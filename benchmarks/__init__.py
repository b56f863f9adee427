"""Benchmarks of posenc and other libraries. Times are ratios to a limit, such as a copy."""
