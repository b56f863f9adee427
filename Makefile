# Each target works in the environment that is active; CONTRIBUTING.md says how to make one.
.PHONY: run test check lint types table

run:            ## compare all encodings on the packaged novel
	posenc compare --out report/

test:           ## tests, doctests, examples, the code of the README, and the compiled paths
	python -m pytest

check: lint types test

lint:
	ruff format --check .
	ruff check .
	python docs/table.py --check

types:
	pyright --pythonpath "$$(command -v python)"

table:          ## write the property table of the README anew
	python docs/table.py
