import pathlib
import subprocess
import sys

import pytest

SCRIPT = pathlib.Path(__file__).parents[2] / "scripts" / "load_while_saving.py"


@pytest.mark.slow
def test_loads_beside_a_writer_never_mix_two_versions():
    command = [sys.executable, SCRIPT, "--loads", "10"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout.endswith("\n0 mixed, 0 left-over files\n")
    assert result.stdout.count("10 loads") == 4
