"""Encodings that add a bias to each score, computed from the distance of query and key."""
