"""What all pages share: one HTML file each, with its styles, scripts and data inside."""

import dataclasses
import html
import importlib.resources
from collections.abc import Mapping, Sequence

import jinja2
from markupsafe import Markup

from keras_bert_d2l.printing import printable

_FRAME_HEIGHT = 900  # pixels, in a notebook
_STYLE = "page/look.css"  # of every page


@dataclasses.dataclass(frozen=True, repr=False)
class Page:
    """A page in one HTML file, which needs neither a network nor other files.

    A notebook shows the page itself.

    Attributes:
        title: Title of the page.
        html: The file.

    Example:

    ```python
    import keras_bert_d2l as kb

    kb.Page("Hello", "<!doctype html><title>Hello</title>")
    ```
    """

    title: str
    html: str

    def __repr__(self) -> str:
        return f"Page({self.title!r}, {self.num_bytes:,} bytes)"

    @property
    def num_bytes(self) -> int:
        """Size of the file."""
        return len(self.html.encode())

    def _repr_html_(self) -> str:
        return (
            f'<iframe title="{html.escape(self.title)}" srcdoc="{html.escape(self.html)}" '
            f'style="width:100%;height:{_FRAME_HEIGHT}px;border:0"></iframe>'
        )


def render(
    template: str,
    title: str,
    *,
    styles: Sequence[str],
    scripts: Sequence[str] = (),
    data: Mapping[str, str] | None = None,
    **values: object,
) -> Page:
    """Return a page.

    Args:
        template: Template that extends `page/page.html.jinja`. It escapes the texts in it.
        title: Title of the page.
        styles: Files of the styles, besides those of all pages.
        scripts: Files of the scripts, which run together at the end of the page.
        data: Content for the scripts, by id of its element. It is escaped.
        **values: Values for the template.
    """
    values = {**values, "styles": [_STYLE, *styles], "scripts": scripts, "data": data or {}}
    return Page(printable(title), fill(template, title=title, **values))


def fill(template: str, **values: object) -> str:
    """Return a template of this package with its values, which are escaped."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader(__package__, ""),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=lambda value: value if isinstance(value, Markup) else printable(str(value)),
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals["source"] = source
    return environment.get_template(template).render(**values)


def source(name: str) -> Markup:
    """Return the content of a style sheet or a script of this package, which is not escaped."""
    return Markup(importlib.resources.files(__package__).joinpath(name).read_text("utf-8"))
