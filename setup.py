"""Make the links of README.md absolute, for PyPI. All other metadata is in setup.cfg."""

import pathlib
import re

from setuptools import setup

REPOSITORY = "https://github.com/keras-bert-d2l/keras-bert-d2l"


def absolute(link):
    """Return the end of a Markdown link, which may lead to a picture or a heading."""
    target = link[1] if not link[1].startswith("#") else f"README.md{link[1]}"
    return f"]({REPOSITORY}/{'raw' if target.endswith('.png') else 'blob'}/main/{target})"


readme = pathlib.Path(__file__).with_name("README.md").read_text(encoding="utf-8")
setup(long_description=re.sub(r"\]\((?!https?:)([\w./#-]+)\)", absolute, readme))
