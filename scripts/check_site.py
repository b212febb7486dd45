"""Finish the site that was built, and check what the builder does not.

* Every page's Markdown is put beside it, as docs/llms.txt says.
* Every name in `__all__` of each module that docs/reference lists is in the reference, and no other name.
* No page loads anything from elsewhere.

usage: check_site.py SITE
"""

from __future__ import annotations

import ast
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

REPO = Path(__file__).parent.parent
DOCS = REPO / "docs"
ROOTS = ("runtime", "providers", "skills")
LOADED = re.compile(
    r'<(?:script|img|iframe)\b[^>]*\bsrc="((?:https?:)?//[^"]+)|<link\b[^>]*\bhref="(https?://[^"]+)'
)


def exported(module: str) -> list[str]:
    """Return what `__all__` of a module says."""
    place = module.replace(".", "/")
    for path in (REPO / root / f"{place}{end}" for root in ROOTS for end in (".py", "/__init__.py")):
        found = (
            re.search(r"^__all__ = (\[.*?\])", path.read_text("utf-8"), re.M | re.S)
            if path.exists()
            else None
        )
        if found:
            return list(ast.literal_eval(found[1]))
    raise SystemExit(f"docs/reference names {module}, which exports nothing")


def wrong_names(site: Path) -> Iterator[str]:
    """Yield the names that the reference should have and has not, or has and should not."""
    for page in sorted((DOCS / "reference").glob("*.md")):
        folder = "reference" if page.stem == "index" else f"reference/{page.stem}"
        html = (site / folder / "index.html").read_text("utf-8")
        for module in re.findall(r"^::: (\S+)$", page.read_text("utf-8"), re.M):
            shown = set(re.findall(rf'<h3 id="{re.escape(module)}\.(\w+)"', html))
            names = set(exported(module))
            yield from (f"{page.name} lacks {module}.{name}" for name in sorted(names - shown))
            yield from (f"{page.name} shows {module}.{name}" for name in sorted(shown - names))


def loaded_from_elsewhere(site: Path) -> Iterator[str]:
    """Yield what pages load from other hosts."""
    for page in sorted(site.rglob("*.html")):
        for address in LOADED.findall(page.read_text("utf-8")):
            yield f"{page.relative_to(site)} loads {''.join(address)}"


def main(site: Path) -> None:
    """Put the sources there, and fail if something is wrong."""
    for page in DOCS.rglob("*.md"):
        target = site / page.relative_to(DOCS)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(page, target)
    wrong = [*wrong_names(site), *loaded_from_elsewhere(site)]
    if wrong:
        raise SystemExit("\n".join(wrong))
    print(f"{site}: {len(list(site.rglob('index.html')))} pages; python -m http.server -d {site}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
