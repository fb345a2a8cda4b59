"""What the tests of commands share."""

from pathlib import Path

import pytest

from tests.memplan.commands.model_files import write_model_file


@pytest.fixture
def model_file(tmp_path: Path) -> Path:
    """Return the path of a model file that is in order."""
    return write_model_file(tmp_path)
