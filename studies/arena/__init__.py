"""The arena: a frozen suite of studies for every encoding, and a board of verified results.

`suite` has the plans, `board` verifies results and writes the board; docs/studies.md has the rules.
The studies run and resume as any other: see `posenc.lab.study`.
"""
