"""Analyses of stored studies that their plans do not contain, such as rank predictions."""
