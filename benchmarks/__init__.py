"""Time encodings beside other libraries in one run, as ratios to a limit such as a plain copy."""
