"""One pool for all grading tests: starting one takes seconds."""

from __future__ import annotations

import pytest

from meml_mel.grading.pool import GradingPool


@pytest.fixture(scope="session")
def pool():
    with GradingPool(workers=2, timeout=1.0) as pool:
        yield pool
