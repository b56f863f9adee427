"""The parts that all others build on: positions, encodings, masks, biases, frequencies."""
