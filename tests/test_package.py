"""The installed package: its version, public names, dependencies and files."""

import configparser
import importlib.metadata
import re
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

import keras_bert_d2l

ROOT = Path(__file__).parents[1]
PACKAGE = Path(keras_bert_d2l.__file__).parent


@pytest.fixture(scope="module")
def setup_cfg():
    parser = configparser.ConfigParser()
    parser.read(ROOT / "setup.cfg", encoding="utf-8")
    return parser


@pytest.fixture(scope="module")
def requirements(setup_cfg):
    lines = setup_cfg["options"]["install_requires"].split("\n")
    found = [Requirement(line) for line in lines if line]
    return {requirement.name: requirement for requirement in found}


def test_the_version_matches_the_installed_distribution():
    assert keras_bert_d2l.__version__ == importlib.metadata.version("keras-bert-d2l")
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["version"] == keras_bert_d2l.__version__


def test_every_public_name_exists_and_is_listed_once():
    assert len(set(keras_bert_d2l.__all__)) == len(keras_bert_d2l.__all__)
    for name in keras_bert_d2l.__all__:
        assert getattr(keras_bert_d2l, name) is not None


def test_the_package_is_marked_as_typed():
    assert (PACKAGE / "py.typed").is_file()


def test_every_folder_of_modules_is_a_package():
    folders = {path.parent for path in PACKAGE.rglob("*.py")}
    assert [folder for folder in folders if not (folder / "__init__.py").is_file()] == []


def test_dependencies_have_lower_bounds_and_upper_ones_only_where_something_breaks(setup_cfg):
    extras = setup_cfg["options.extras_require"].values()
    lines = "\n".join([setup_cfg["options"]["install_requires"], *extras]).split("\n")
    limited = set()
    for requirement in map(Requirement, filter(None, lines)):
        operators = {specifier.operator for specifier in requirement.specifier}
        assert operators & {">=", "=="}, requirement
        if operators != {">="}:
            limited.add(requirement.name)
    # JAX and tokenizers change their interfaces, Ruff its rules, and this Torch is built for CPUs.
    assert limited == {"jax", "ruff", "tokenizers", "torch"}


def test_the_page_of_versions_has_the_ranges_of_setup_cfg(setup_cfg, requirements):
    page = (ROOT / "docs/versions.md").read_text(encoding="utf-8")
    table = dict(re.findall(r"^\| (\w[\w-]*) \| `([<>=!\d.,]+)` \|", page, re.MULTILINE))
    extras = "\n".join(setup_cfg["options.extras_require"].values()).split("\n")
    ranges = {found.name: found.specifier for found in map(Requirement, filter(None, extras))}
    ranges |= {name: required.specifier for name, required in requirements.items()}
    ranges["Python"] = SpecifierSet(setup_cfg["options"]["python_requires"])
    assert {"Python", "jax", "onnxruntime", *requirements} <= set(table)
    assert {name: SpecifierSet(text) for name, text in table.items()} == {
        name: ranges[name] for name in table
    }


def test_no_file_of_the_package_contains_an_absolute_path():
    absolute = re.compile(r"""["'\s(](/(?:home|root|tmp|usr|var|opt|mnt|Users)/\w+)""")
    found = [
        f"{path.relative_to(PACKAGE)}: {match[1]}"
        for path in PACKAGE.rglob("*.py")
        for match in absolute.finditer(path.read_text(encoding="utf-8"))
    ]
    assert found == []
