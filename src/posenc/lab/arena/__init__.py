"""The arena: a fixed suite of studies that measures any encoding.

`suite` has the plans, `quick` the first look of ten minutes. The studies run and resume as any
other: see `posenc.lab.study`. The board of results and its checks are in the repository.
"""
