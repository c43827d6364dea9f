# Everything needs Python 3.11 or later, Perl 5 and make, the tests g++ too; each target sets up the rest of what it needs.
PYTHON ?= python3
VENV ?= .venv
WORKERS ?= 2
BIN = $(VENV)/bin

.PHONY: table quick test test-all test-long test-exhaustive test-torch test-gpu lint verify docs wheel clean
.DELETE_ON_ERROR:

table: $(VENV)/.with-plot  ## the paper's table and figures, every output element checked
	$(BIN)/python benchmarks/alexnet_overfeat.py

quick: $(VENV)/.with-plot  ## the same from the timing model alone
	$(BIN)/python benchmarks/alexnet_overfeat.py --quick

# All four always run and each can fail the target; the tests come last, so that their summary ends the output. Kernels
# and the timing model are made first, because else both workers would make what both need.
test: $(VENV)/.with-test  ## linter, type checker, and of each property's tests at least a sample: about seven minutes
	@status=0; $(BIN)/ruff check . || status=1; $(BIN)/mypy & mypy=$$!; \
	$(BIN)/python -c 'import maxdnn.simulator.compiled' & model=$$!; \
	$(BIN)/python -c 'from maxdnn.build.cubins import build_all; build_all()' || status=1; \
	wait $$mypy || status=1; wait $$model || status=1; \
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile || status=1; exit $$status

test-all: test test-long test-torch  ## what CI runs

test-long: $(VENV)/.with-test  ## the tests and parameters that `make test` leaves out because they take long
	$(BIN)/python -m pytest -m 'long and not exhaustive' -n $(WORKERS) --dist loadfile

test-exhaustive: $(VENV)/.with-test  ## parameters that CI leaves out, too
	$(BIN)/python -m pytest -m exhaustive -n $(WORKERS) --dist loadfile

test-torch: $(VENV)/.with-test $(VENV)/.with-torch  ## maxdnn.torch on the virtual GPU; installs PyTorch
	$(BIN)/python -m pytest -m torch -n $(WORKERS) tests/pytorch

test-gpu: $(VENV)/.with-test $(VENV)/.with-cuda  ## on a machine with a CUDA GPU: the tests that need one
	$(BIN)/python -m pytest -m gpu tests/gpu tests/pytorch

lint: $(VENV)/.with-test
	$(BIN)/ruff check .
	$(BIN)/mypy

verify: $(VENV)/.with-plot  ## the ten full-size layers against float64
	$(BIN)/python benchmarks/verify_layers.py

# "!" takes out modules that an earlier name brought in: the pages show what users import, where they import it.
docs: $(VENV)/.with-docs  ## reference pages of the public API, from docstrings, in build/docs
	$(BIN)/python -m pdoc --docformat numpy -o build/docs maxdnn '!maxdnn[.].*' maxdnn.torch '!maxdnn[.]torch[.].*' \
		maxdnn.reference maxdnn.cubin maxdnn.emulator '!maxdnn[.]emulator[.].*' maxdnn.runtime.devices.find

wheel: $(VENV)/.with-test  ## an installable wheel with all cubins in dist/
	$(BIN)/python -m pip wheel --no-deps --wheel-dir dist .

clean:
	rm -rf build dist maxdnn/kernels_bin *.egg-info .pytest_cache .hypothesis .mypy_cache .ruff_cache

# An environment with this tree installed editable and the extra its stamp is named after.
$(VENV)/.with-%: pyproject.toml setup.py
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --editable '.[$*]'
	touch $@
