"""The version of posenc, which the build system reads from this file."""

__version__ = "0.1.0"
