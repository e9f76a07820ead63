"""Check a built site: its links lead somewhere, and it loads nothing from the network.

Each name of the reference also links to its lines in the source, options have defaults, and samples
have the tabs of their pages.

    python scripts/check_site.py site

Links to other sites are not followed, except those to the source.
"""

import html.parser
import pathlib
import re
import sys
from urllib.parse import unquote, urlsplit

ROOT = pathlib.Path(__file__).parents[1]
SOURCE = re.compile(r"/blob/main/(.+)#L(\d+)-L(\d+)$")
OPTIONS = re.compile(
    r"\*\*\w+</code>(?:(?!</li>).)*(?:arguments of|as in) <code>BERTConfig(?:(?!</li>).)*",
    re.DOTALL,
)
STYLE_URL = re.compile(r"url\(\s*['\"]?([^'\")]+)|@import\s+['\"]([^'\"]+)")


class Page(html.parser.HTMLParser):
    """The ids of a page, the targets of its links, and the files that it loads."""

    def __init__(self, path: pathlib.Path) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.headings: list[str] = []  # the names of the reference
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.ids.update(values[name] for name in ("id", "name") if name in values)
        if "doc-heading" in values.get("class", "").split():
            self.headings.append(values["id"])
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        elif tag == "link" and values.get("rel") not in ("canonical", "next", "prev"):
            self.loaded.append(values["href"])
        elif "src" in values:
            self.loaded.append(values["src"])


def reference_problems(path: pathlib.Path, page: Page) -> list[str]:
    """Return a line for each name without its source, and for options without defaults."""
    found, names = [], set(page.headings)
    for match in filter(None, map(SOURCE.search, page.links)):
        file, start, end = ROOT / match[1], int(match[2]), int(match[3])
        lines = file.read_text(encoding="utf-8").splitlines() if file.is_file() else []
        text = "\n".join(lines[start - 1 : end]) if end <= len(lines) else ""
        names -= {name for name in names if name.rpartition(".")[2] in text}
        if not text:
            found.append(f"{path}: no such lines: {match[0]}")
    found += [f"{path}: no link to the source of {name}" for name in sorted(names)]
    text = path.read_text(encoding="utf-8")
    if ">Unpack<" in text:
        found.append(f"{path}: a signature with Unpack[...]")
    for item in OPTIONS.findall(text):
        if "norm_first=False" not in item:
            found.append(f"{path}: options without defaults: {item:.80}")
    return found


def problems(site: pathlib.Path) -> list[str]:
    """Return a line for each broken link and each file that is loaded from elsewhere."""
    pages = {path: Page(path) for path in sorted(site.rglob("*.html")) if path.name != "404.html"}
    found = []
    for path, page in pages.items():
        source = ROOT / "docs" / path.relative_to(site).with_suffix(".md")
        if path.read_text(encoding="utf-8").count("\t") < source.read_text(encoding="utf-8").count(
            "\t"
        ):
            found.append(f"{path}: fewer tabs than {source}")
        found += reference_problems(path, page)
        for url in page.loaded + page.links:
            parts = urlsplit(url)
            if parts.scheme or parts.netloc:
                if url in page.loaded and parts.scheme != "data":
                    found.append(f"{path}: loads {url}")
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path.resolve()
            other = pages.get(site / target.relative_to(site)) if site in target.parents else None
            is_broken = not target.is_file() or (
                parts.fragment and other and unquote(parts.fragment) not in other.ids
            )
            if is_broken:
                found.append(f"{path}: broken link {url}")
    for path in sorted(site.rglob("*.css")):
        for match in STYLE_URL.finditer(path.read_text(encoding="utf-8")):
            url = match[1] or match[2]
            if urlsplit(url).scheme not in ("", "data") or url.startswith("//"):
                found.append(f"{path}: loads {url}")
    return found


if __name__ == "__main__":
    folder = pathlib.Path(sys.argv[1]).resolve()
    lines = problems(folder)
    print(*lines, sep="\n")
    print(f"{len(list(folder.rglob('*.html')))} pages, {len(lines)} problems")
    sys.exit(bool(lines))
