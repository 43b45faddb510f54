#!/usr/bin/env python3
"""What a page points to is there: the files of relative links in Markdown, their headings, and paths that pages name in `code`.

  links.py ROOT         exit 1 and a line for each that is not
  links.py --self-test
"""

import os
import re
import sys
import tempfile

TREES = ("", "bench", "deploy", "docker", "docs", "examples", "lib", "python", "services", "tests")
FENCED = re.compile(r"^```.*?^```", re.M | re.S)
LINK = re.compile(r"\]\(([^)\s]+)\)")
# `docs/x.md`, `lib/a/b.cc`: a path of the tree, without what stands for several files or for one's own.
NAMED = re.compile(r"`((?:bench|cmake|deploy|docker|docs|examples|lib|proto|python|services|tests)/[\w./-]*\w\.(?:cc|h|inc|md|proto|py|sh|txt|yaml))`")


def pages(root):
    for tree in TREES:
        for folder, folders, files in os.walk(os.path.join(root, tree)):
            folders[:] = [] if tree == "" else sorted(folders)
            yield from (os.path.join(folder, name) for name in sorted(files) if name.endswith(".md"))


def anchors(text):
    """As GitHub makes them of headings: lower case, no punctuation, '-' for a space, and a number where one comes again."""
    found = []
    for heading in re.findall(r"^#{1,6} +(.*?) *#*$", FENCED.sub("", text), re.M):
        words = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading)
        anchor = re.sub(r"[^\w\- ]", "", words.lower()).replace(" ", "-")
        found.append(anchor if anchor not in found else f"{anchor}-{sum(one == anchor for one in found)}")
    return found


def broken(root):
    found = []
    for page in pages(root):
        with open(page, encoding="utf-8") as file:
            text = file.read()
        name, prose = os.path.relpath(page, root), FENCED.sub("", text)
        for target in LINK.findall(prose):
            path, _, anchor = target.partition("#")
            if re.match(r"[a-z]+:", target):
                continue
            there = os.path.normpath(os.path.join(os.path.dirname(page), path)) if path else page
            if not os.path.exists(there):
                found.append(f"{name}: no file {path}")
            elif anchor:
                with open(there, encoding="utf-8") as file:
                    if anchor not in anchors(file.read()):
                        found.append(f"{name}: {path or name} has no heading #{anchor}")
        # What was once is told of in these: they name files that are gone.
        if name != "CHANGELOG.md" and not name.startswith(os.path.join("docs", "adr")):
            found += [f"{name}: no file {path}" for path in NAMED.findall(prose) if not os.path.exists(os.path.join(root, path))]
    return found


def self_test():
    with tempfile.TemporaryDirectory() as root:
        os.makedirs(os.path.join(root, "docs", "adr"))
        for name, text in (
                ("README.md", "[a](docs/a.md) [b](docs/b.md) [two](docs/a.md#two-words-1) [none](docs/a.md#no) [x](https://x.y/z.md)\n"
                              "```\n[not](read.md)\n```\n`docs/a.md` `lib/gone.cc` `lib/*.cc` `runs/x/a.md`\n"),
                ("docs/a.md", "# Two `words`!\n## Two words\n[up](../README.md) [here](#two-words) [there](#nowhere)\n"),
                ("docs/adr/1.md", "`lib/gone.cc` [gone](gone.md)\n")):
            with open(os.path.join(root, name), "w", encoding="utf-8") as file:
                file.write(text)
        expected = ["README.md: no file docs/b.md", "README.md: docs/a.md has no heading #no", "README.md: no file lib/gone.cc",
                    "docs/a.md: docs/a.md has no heading #nowhere", "docs/adr/1.md: no file gone.md"]
        assert broken(root) == expected, broken(root)


def main():
    if sys.argv[1] == "--self-test":
        self_test()
        return 0
    found = broken(sys.argv[1])
    for line in found:
        print(line)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
