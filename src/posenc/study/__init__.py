"""Train short, test long: tasks with lengths, small models, and the statistics of comparing them.

`load` gives back a model that `posenc study --keep` has written.
"""

from posenc.study.kept import load as load
