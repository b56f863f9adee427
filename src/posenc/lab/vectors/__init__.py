"""Test vectors: inputs and exact outputs to check any implementation of positional encodings."""
