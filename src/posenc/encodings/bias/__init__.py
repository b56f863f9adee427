"""Encodings that add a bias to the scores, which depends on the distance of query and key."""
