"""The installation on the first screen of the README fits the package.

`test_commands.py` runs the other lines.
"""

import configparser
import pathlib
import re

ROOT = pathlib.Path(__file__).parents[2]
_, AFTER = (ROOT / "README.md").read_text().split("## Install and try it\n")
FIRST_SCREEN, _ = AFTER.split("\n## ", 1)
SHELL = [
    line.split("  #")[0]
    for block in re.findall("```sh\n(.+?)```", FIRST_SCREEN, re.DOTALL)
    for line in block.splitlines()
]
COMMANDS = [line for line in SHELL if line.startswith("keras-bert-d2l ")]


def test_the_installation_names_the_repository_and_an_extra():
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    install, *_ = SHELL
    assert install == f'pip install "keras-bert-d2l[hub] @ git+{config["metadata"]["url"]}"'
    assert "hub" in config["options.extras_require"]
    clone, *targets = [line for line in SHELL if line not in (install, *COMMANDS)]
    assert clone == f"git clone {config['metadata']['url']} && cd keras-bert-d2l"
    for target in targets:
        command, name = target.split()
        assert command == "make"
        assert f"\n{name}: " in (ROOT / "Makefile").read_text()
