"""Commands that are stopped while they write, by a full disk or a signal, can be repeated."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

writes = pytest.importorskip("scripts.interrupt_writes")

NAMESPACE = ["unshare", "--user", "--map-root-user", "--mount"]
MOUNT = ["mount", "-t", "tmpfs", "tmpfs", "/mnt"]


@pytest.mark.long
@pytest.mark.parametrize("name", writes.COMMANDS)
def test_a_stopped_command_fails_clearly_and_can_be_repeated(name):
    if not shutil.which("unshare") or subprocess.run([*NAMESPACE, *MOUNT]).returncode:
        pytest.skip("needs a system on which a user may mount a small disk")
    script = [*NAMESPACE, sys.executable, "-m", writes.__name__, "--kills", "2", name]
    root = Path(writes.__file__).parents[1]
    result = subprocess.run(script, cwd=root, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr
