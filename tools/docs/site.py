"""Completes the site that MkDocs builds: its first page, and what pages link to outside docs/.

The first page is README.md. A link that leaves docs/ leads to a copy of the file as text within the site, so that every
link works in a checkout, on the site and offline; a link to a folder leads to the list of its files.
"""

from __future__ import annotations

import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[2]
LINK = re.compile(r"(\]\()([^)\s#]+)(#[^)]*)?\)")


def _target(link: str, folder: Path) -> Path | None:
    """The file of the checkout, relative to its root, to which a link of a page in `folder` leads."""
    if "://" in link or link.startswith("mailto:"):
        return None
    path = (folder / link).resolve()
    return path.relative_to(ROOT) if path.is_relative_to(ROOT) and path.exists() else None


def _published(path: Path) -> str:
    """Where a file of the checkout is within the site's sources."""
    if path == Path("README.md"):
        return "index.md"
    if path.parts[0] == "docs" and path != Path("docs"):
        inside = path.relative_to("docs")
        return f"{inside}/0001-owners-not-indices.md" if (ROOT / path).is_dir() else str(inside)
    return f"source/{path}/files.txt" if (ROOT / path).is_dir() else f"source/{path}.txt"


def _links(markdown: str, folder: Path) -> set[Path]:
    return {path for match in LINK.finditer(markdown) if (path := _target(match[2], folder))}


def _text(path: Path) -> str:
    if path.is_dir():
        return "\n".join(sorted(entry.name for entry in path.iterdir())) + "\n"
    return path.read_text(encoding="utf-8")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    pages = [(ROOT, readme)]
    pages += [(p.parent, p.read_text(encoding="utf-8")) for p in (ROOT / "docs").rglob("*.md")]
    files.append(File.generated(config, "index.md", content=readme))
    for path in sorted(set().union(*(_links(text, folder) for folder, text in pages))):
        source = _published(path)
        if source.startswith("source/"):
            files.append(File.generated(config, source, content=_text(ROOT / path)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    source = page.file.src_uri
    folder = ROOT if source == "index.md" else (ROOT / "docs" / source).parent
    up = "../" * source.count("/")

    def rewritten(match: re.Match[str]) -> str:
        path = _target(match[2], folder)
        return f"{match[1]}{up}{_published(path)}{match[3] or ''})" if path else match[0]

    return LINK.sub(rewritten, markdown)
