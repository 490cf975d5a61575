# Two commands set everything up: `make demo` and `make test`.
PYTHON ?= python3.11
VENV ?= .venv
PY := $(VENV)/bin/python
JOBS ?= 2

.PHONY: demo test test-avx2 test-long bench clean

$(VENV)/installed: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(PY) -m pip install --quiet --disable-pip-version-check -e ".[dev,bench]"
	$(PY) -m pip install --quiet --disable-pip-version-check -e ".[gpu-tests]" || \
	  echo "PoCL and NVRTC cannot be installed here: tests that need them are skipped, and listed at the end"
	$(PY) -m pip install --quiet --disable-pip-version-check "torch==2.13.0" expecttest || \
	  echo "PyTorch cannot be installed here: tests that need it are skipped, and listed at the end"
	$(PY) -m pip install --quiet --disable-pip-version-check -e ".[digits]" || \
	  echo "scikit-learn cannot be installed here: tests that need it are skipped, and listed at the end"
	$(PY) -m pip install --quiet --disable-pip-version-check -e ".[dask,mpi,signed]" || \
	  echo "Dask and MPI cannot be installed here: tests that need them are skipped, and listed at the end"
	$(PY) -m pip install --quiet --disable-pip-version-check -e ".[mlir]" || \
	  echo "MLIR's tools cannot be installed here: tests that need them are skipped, and listed at the end"
	touch $@

# Fetches three trained networks from their PyPI package, compiles them and reads the text in a drawn picture.
demo: $(VENV)/installed
	$(PY) examples/demo.py

# Everything CI runs: style, types, then all tests but the long suites.
test: $(VENV)/installed
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy
	$(PY) -m pytest -n $(JOBS) -rs -m "not long and not bench"

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
