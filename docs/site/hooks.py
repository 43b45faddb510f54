"""What makes a site of pages that are written for the forge: MkDocs calls these functions (mkdocs.yml names the file).

A page links files of the tree by relative paths. Those of docs/ MkDocs knows. README.md is the site's first page; the other
pages outside docs/ that the navigation names keep their paths, and any other file that a page links is copied to `tree/`.
"""

import os
import re

from mkdocs.plugins import get_plugin_logger
from mkdocs.structure.files import File

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
FIRST = {"README.md": "index.md"}
CODE = re.compile(r"^```.*?^```|`[^`\n]*`", re.M | re.S)
LINK = re.compile(r"(?<=\]\()([^)\s]+)(?=\))")
CSS = """.md-grid { max-width: 72rem }
.md-typeset table:not([class]) code { overflow-wrap: normal; word-break: normal }
"""

log = get_plugin_logger("troupe")


def leaves(nav):
    """The paths of a navigation."""
    for entry in nav:
        inner = list(entry.values())[0] if isinstance(entry, dict) else entry
        yield from leaves(inner) if isinstance(inner, list) else [inner]


def on_config(config):
    """A folder in the navigation is all of its pages, its README.md first."""
    for entry in config.nav:
        (title, inner), = entry.items()
        if isinstance(inner, str) and inner.endswith("/"):
            pages = sorted(name for name in os.listdir(os.path.join(config.docs_dir, inner)) if name.endswith(".md") and name != "README.md")
            entry[title] = [inner + "README.md", *(inner + name for name in pages)]
    return config


def on_files(files, config):
    for path in leaves(config.nav):
        source = next((ours for ours, theirs in FIRST.items() if theirs == path), path)
        if files.get_file_from_path(path) is None and os.path.isfile(os.path.join(ROOT, source)):
            files.append(File.generated(config, path, abs_src_path=os.path.join(ROOT, source)))
    files.append(File.generated(config, "site.css", content=CSS))
    return files


def place(page_uri):
    """Where a page of the site lies in the tree."""
    return next((ours for ours, theirs in FIRST.items() if theirs == page_uri),
                page_uri if os.path.isfile(os.path.join(ROOT, page_uri)) else "docs/" + page_uri)


def on_page_markdown(markdown, page, config, files):
    """Links of the tree become links of the site; a | of code in a table loses its backslash, which the forge wants."""
    here = place(page.file.src_uri)

    def target(found):
        path, mark, anchor = found[1].partition("#")
        if not path or re.match(r"[a-z]+:", path):
            return found[1]
        there = os.path.normpath(os.path.join(os.path.dirname(here), path))
        if os.path.isdir(os.path.join(ROOT, there)):
            there += "/README.md"
        uri = there[len("docs/"):] if there.startswith("docs/") else FIRST.get(there, there)
        if files.get_file_from_path(uri) is None:
            if there.endswith(".md") or not os.path.isfile(os.path.join(ROOT, there)):
                log.warning(f"{here} links {found[1]}: expected a file of the tree or a page of the navigation")
                return found[1]
            uri = "tree/" + there
            if files.get_file_from_path(uri) is None:
                files.append(File.generated(config, uri, abs_src_path=os.path.join(ROOT, there)))
        return os.path.relpath(uri, os.path.dirname(page.file.src_uri) or ".") + mark + anchor

    parts, end = [], 0
    for code in CODE.finditer(markdown):
        row = markdown[markdown.rfind("\n", 0, code.start()) + 1:].startswith("|")
        parts += [LINK.sub(target, markdown[end:code.start()]), code[0].replace("\\|", "|") if row else code[0]]
        end = code.end()
    return "".join(parts) + LINK.sub(target, markdown[end:])
