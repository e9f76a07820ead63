"""Check that the links of a built site lead somewhere, and that it loads nothing from the network.

    python scripts/check_site.py site

Links to other sites are not followed.
"""

import html.parser
import pathlib
import re
import sys
from urllib.parse import unquote, urlsplit

STYLE_URL = re.compile(r"url\(\s*['\"]?([^'\")]+)|@import\s+['\"]([^'\"]+)")


class Page(html.parser.HTMLParser):
    """The ids of a page, the targets of its links, and the files that it loads."""

    def __init__(self, path: pathlib.Path) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.ids.update(values[name] for name in ("id", "name") if name in values)
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        elif tag == "link" and values.get("rel") not in ("canonical", "next", "prev"):
            self.loaded.append(values["href"])
        elif "src" in values:
            self.loaded.append(values["src"])


def problems(site: pathlib.Path) -> list[str]:
    """Return a line for each broken link and each file that is loaded from elsewhere."""
    pages = {path: Page(path) for path in sorted(site.rglob("*.html")) if path.name != "404.html"}
    found = []
    for path, page in pages.items():
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
