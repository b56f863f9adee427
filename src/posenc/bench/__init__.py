"""Side by side with other libraries, in one run: what encodings cost, as ratios to the limit."""
