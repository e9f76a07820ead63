import pathlib
import subprocess
import sys

import pytest

SCRIPT = pathlib.Path(__file__).parents[2] / "scripts" / "load_while_saving.py"


@pytest.mark.slow
@pytest.mark.parametrize("format", ["native", "huggingface", "google", "book"])
def test_loads_beside_a_writer_never_mix_two_versions(format):
    command = [sys.executable, SCRIPT, "--loads", "20", "--format", format]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "0 mixed, 0 left-over files" in result.stdout
