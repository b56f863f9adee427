"""Presentation of results: HTML pages, figures, and the explorer.

No package below `posenc.show` imports it.
"""
