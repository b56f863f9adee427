"""The arena: a fixed suite of studies that measures any encoding, and a board of results.

`suite` has the plans, `board` verifies results and writes the board; docs/studies.md has the rules.
The studies run and resume as any other: see `posenc.lab.study`.
"""
