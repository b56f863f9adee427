"""The site: its pages from the repository's texts, cards, docstrings and stores."""
