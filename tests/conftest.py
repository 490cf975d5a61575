"""Options shared by all tests."""

import gc
import os
from typing import Any

import pytest

from tests.parts import mark_spared_cases
from tests.pocl_of_new_cpus import use_known_cpu
from tests.prepared_compilers import use_prepared_compilers

os.environ.setdefault("POLYC_PROGRAMS", "0")  # tests look at what compiling does; test_known_models.py asks for them
use_known_cpu()
use_prepared_compilers()


def pytest_addoption(parser: Any) -> None:
    parser.addoption("--update-golden", action="store_true", help="write golden files anew instead of comparing")


@pytest.fixture
def update_golden(request: pytest.FixtureRequest) -> bool:
    """Whether golden files are to be written."""
    return bool(request.config.getoption("--update-golden"))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Of a test with many cases some run each time, and all among the long tests (`tests.parts`)."""
    mark_spared_cases(items)


def pytest_collection_finish() -> None:
    """Eleven thousand tests and what they import are there to the end: looking for cycles among them takes some
    hundredths of all the time."""
    gc.collect()
    gc.freeze()
