"""The checker of types in tests: beartype, to which a whole number is a number, as PEP 484 says."""

from beartype import BeartypeConf, beartype

check = beartype(conf=BeartypeConf(is_pep484_tower=True))
