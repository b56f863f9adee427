"""The arena: one frozen suite for every encoding, and a board of what came of it.

`suite` is what is run, `board` what is verified and listed; docs/studies.md has the rules. A study
runs the cells, stores them, and goes on where it was stopped: see `posenc.lab.study`.
"""
