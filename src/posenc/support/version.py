"""The version of posenc, which packaging reads here."""

__version__ = "0.1.0"
