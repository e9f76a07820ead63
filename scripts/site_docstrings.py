"""Prepare docstrings for the site: sections for Griffe, defaults of options, and source links."""

import functools
import pathlib
import re
from collections.abc import Iterator

import griffe

ROOT = pathlib.Path(__file__).parents[1]
SOURCE = "https://github.com/keras-bert-d2l/keras-bert-d2l/blob/main"
REPLACEMENTS = {
    r"^(Returns|Yields): (?=\S)": r"\1:\n    ",  # a section in one line
    r"^Call arguments:$": "Other Args: Call arguments:",  # a list with this title
    r"^Example:(?=\n +>>>)": "Examples:",  # a doctest
}
# The item of `**options` in a docstring. It names the classes whose fields are accepted, or fields
# one by one: of another class, "as in" it, or of the base classes.
OPTIONS = re.compile(r"^( +)\*\*\w+: .*(?:\n\1 +\S.*)*", re.MULTILINE)
ACCEPTED = re.compile(r"(?:fields|arguments) of ((?:(?:, | and )?`[\w.]+`)+)")
AS_IN = re.compile(r"as\s+in `([\w.]+)`")


class SiteDocstrings(griffe.Extension):
    """Change the docstrings after Griffe has loaded them."""

    def on_object(self, *, obj: griffe.Object, **_: object) -> None:
        """Rewrite the headings of sections, and link the summary to the source."""
        if obj.docstring:
            text = obj.docstring.value
            for pattern, replacement in REPLACEMENTS.items():
                text = re.sub(pattern, replacement, text, flags=re.MULTILINE)
            if obj.lineno and not obj.is_module:
                path = obj.filepath.resolve().relative_to(ROOT).as_posix()
                summary, *rest = text.split("\n\n", 1)
                link = f"[source]({SOURCE}/{path}#L{obj.lineno}-L{obj.endlineno})"
                text = "\n\n".join([f"{summary} {link}", *rest])
            obj.docstring.value = text

    def on_package(self, *, pkg: griffe.Module, **_: object) -> None:
        """List the options and their defaults where a docstring names only their class."""
        objects = list(_walk(pkg))
        named = {one.name: one for one in objects if one.is_class or one.name.isupper()}
        for one in objects:
            for parameter in getattr(one, "parameters", ()):
                if str(parameter.annotation).startswith("Unpack["):
                    parameter.annotation = None  # the docstring names these options
            if one.docstring:
                add = functools.partial(_with_options, one, named)
                one.docstring.value = OPTIONS.sub(add, one.docstring.value)


def _walk(obj: griffe.Object) -> Iterator[griffe.Object]:
    for one in obj.members.values():
        if not one.is_alias:
            yield one
            yield from _walk(one)


def _with_options(obj: griffe.Object, named: dict[str, griffe.Object], item: re.Match) -> str:
    known = {one.name for one in getattr(obj, "parameters", ())} | {"self"}
    classes = [name for one in ACCEPTED.findall(item[0]) for name in re.findall(r"\w+(?=`)", one)]
    fields = [one for name in classes if name in named for one in named[name].parameters]
    others = [named[name] for name in AS_IN.findall(item[0]) if name in named]
    others += obj.mro() if obj.is_class else []
    words = re.findall(r"`(\w+)`", item[0])
    fields += [one for other in others for one in other.parameters if one.name in words]
    options = {
        one.name: one.name if one.default is None else f"{one.name}={_default(one, named)}"
        for one in reversed(fields)
        if one.name not in known and one.kind is not griffe.ParameterKind.var_keyword
    }
    listed = ", ".join(f"`{option}`" for option in reversed(options.values()))
    return f"{item[0]} Options and defaults: {listed}." if options else item[0]


def _default(parameter: griffe.Parameter, named: dict[str, griffe.Object]) -> object:
    constant = named.get(str(parameter.default))
    return constant.value if constant else parameter.default
