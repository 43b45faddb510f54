"""The site of the pages: it builds, its links lead somewhere, and it shows what the forge shows.

    site_test.py SOURCE
"""

import html.parser
import itertools
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
import urllib.parse

from markdown_it import MarkdownIt

SOURCE = os.path.abspath(sys.argv[1])
sys.path.insert(0, os.path.join(SOURCE, "tests", "lint"))
import links  # noqa: E402

OUTSIDE = {"README.md": "index.html"} | {name: name[:-2] + "html" for name in ("CHANGELOG.md", "CONTRIBUTING.md")} | {
    name: name[:-len("README.md")] + "index.html" for name in ("bench/peers/README.md", "examples/custom_env/README.md", "examples/external_cartpole/README.md", "examples/packages/README.md")}
COUNTED = {"h1", "h2", "h3", "h4", "ul", "ol", "li", "table", "tr", "th", "td", "pre", "img", "blockquote"}
INLINE = {"a", "code", "em", "strong", "span", "nav", "div", "button"}


class Reader(html.parser.HTMLParser):
    """Of a page: `tags`, how often each counted one is there; `words`, its text; `ids`; `links` that one follows, `loads` that a browser does by itself.
    With `inside` tags and words of the element article alone, without the marks of headings' links."""

    def __init__(self, text, inside=False):
        super().__init__()
        self.inside, self.reading = inside, not inside
        self.tags, self.text, self.ids, self.links, self.loads = dict.fromkeys(COUNTED, 0), "", set(), [], []
        self.feed(text)
        self.words = self.text.replace("\u00b6", "").split()

    def handle_starttag(self, tag, attributes):
        has = dict(attributes)
        if tag == "article" and self.inside:
            self.reading = True
        if has.get("id"):
            self.ids.add(has["id"])
        if tag == "a" and has.get("href"):
            self.links.append(has["href"])
        self.loads += [has[name] for name in ("src", "data") if has.get(name)]
        if tag == "link" and has.get("rel") in ("stylesheet", "preload", "icon"):
            self.loads.append(has["href"])
        if self.reading and tag in COUNTED:
            self.tags[tag] += 1
        if tag not in INLINE:
            self.text += " "

    def handle_endtag(self, tag):
        if tag == "article" and self.inside:
            self.reading = False
        if tag not in INLINE:
            self.text += " "

    def handle_data(self, data):
        if self.reading:
            self.text += data


def build(source, site):
    return subprocess.run([sys.executable, "-B", "-m", "mkdocs", "build", "--strict", "--config-file", os.path.join(source, "mkdocs.yml"),
                           "--site-dir", site], capture_output=True, text=True, timeout=120, env=dict(os.environ, NO_MKDOCS_2_WARNING="1"))


def run(*arguments):
    """`./troupe ARGUMENTS`, with the Python that runs this test."""
    environment = dict(os.environ, TROUPE_TEST_PYTHON=sys.executable, TROUPE_NO_INSTALL="1")
    return subprocess.run([os.path.join(SOURCE, "troupe"), *arguments], capture_output=True, text=True, timeout=120, env=environment)


def read(*parts):
    with open(os.path.join(*parts), encoding="utf-8") as file:
        return file.read()


class SiteTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.mkdtemp(prefix="troupe_site_")
        cls.addClassCleanup(shutil.rmtree, folder)
        cls.folder, cls.site = folder, os.path.join(folder, "site")
        done = run("docs", "--output", cls.site)
        assert (done.returncode, done.stdout) == (0, f"{cls.site}/index.html\n"), done.stderr
        cls.pages = {os.path.relpath(os.path.join(where, name), cls.site): Reader(read(where, name), inside=True)
                     for where, _, names in os.walk(cls.site) for name in names if name.endswith(".html")}

    def sources(self):
        """(a page in the tree, its page of the site)"""
        for where, _, names in os.walk(os.path.join(SOURCE, "docs")):
            for name in sorted(names):
                if name.endswith(".md"):
                    page = os.path.relpath(os.path.join(where, name), os.path.join(SOURCE, "docs"))
                    yield os.path.join("docs", page), page[:-len("README.md")] + "index.html" if name == "README.md" else page[:-2] + "html"
        yield from OUTSIDE.items()

    def test_an_argument_that_it_does_not_have_is_an_error(self):
        for command, value in (("bundle", "FILE"), ("docs", "FOLDER"), ("wheel", "FOLDER")):
            for argument, said in (("--out", f"{command}: unknown argument '--out'; expected --output {value}"),
                                   ("--output", f"--output needs a {value.lower()}"), ("--output=", f"--output needs a {value.lower()}")):
                done = run(command, argument)
                self.assertEqual((done.returncode, done.stdout, done.stderr), (1, "", f"troupe: error: {said}\n"))

    def test_every_page_is_there_and_the_navigation_leads_to_it(self):
        expected = {page for _, page in self.sources()}
        self.assertEqual(set(self.pages) - expected, {"404.html"})
        self.assertEqual(expected - set(self.pages), set())
        self.assertGreater(len(expected), 60)
        linked = {urllib.parse.unquote(link.partition("#")[0]) for link in self.pages["index.html"].links}
        self.assertEqual(expected - linked - {"index.html"}, set())

    def test_pages_show_the_lists_tables_and_words_that_the_forge_shows(self):
        forge = MarkdownIt("commonmark").enable("table")
        for source, page in self.sources():
            with self.subTest(source):
                expected, got = Reader(forge.render(read(SOURCE, source))), self.pages[page]
                self.assertEqual(got.tags, expected.tags)
                self.assertEqual(next((pair for pair in itertools.zip_longest(got.words, expected.words) if pair[0] != pair[1]), None), None)

    def test_headings_have_the_anchors_that_the_forge_gives_them(self):
        for source, page in self.sources():
            with self.subTest(source):
                self.assertEqual(set(links.anchors(read(SOURCE, source))) - self.pages[page].ids, set())

    def test_every_link_leads_somewhere_and_nothing_is_fetched_from_elsewhere(self):
        followed = 0
        for page, reader in self.pages.items():
            base = self.site if page == "404.html" else os.path.join(self.site, os.path.dirname(page))
            for link in reader.links + reader.loads:
                parts = urllib.parse.urlsplit(link)
                with self.subTest(page=page, link=link):
                    if parts.scheme or parts.netloc:
                        self.assertIn(link, reader.links, "a browser would fetch it by itself")
                        continue
                    there = os.path.normpath(os.path.join(base, urllib.parse.unquote(parts.path).lstrip("/"))) if parts.path else os.path.join(self.site, page)
                    there = os.path.join(there, "index.html") if os.path.isdir(there) else there
                    self.assertTrue(os.path.isfile(there), f"no file {os.path.relpath(there, self.site)}")
                    if parts.fragment and there.endswith(".html"):
                        self.assertIn(urllib.parse.unquote(parts.fragment), self.pages[os.path.relpath(there, self.site)].ids | {"__search"})
                    followed += 1
        self.assertGreater(followed, 1000)

    def test_a_page_that_no_navigation_names_or_whose_links_lead_nowhere_ends_the_build(self):
        tree = os.path.join(self.folder, "tree")
        for name in ("mkdocs.yml", *OUTSIDE):
            os.makedirs(os.path.dirname(os.path.join(tree, name)), exist_ok=True)
            shutil.copy(os.path.join(SOURCE, name), os.path.join(tree, name))
        for folder in ("docs", "examples", "proto"):
            shutil.copytree(os.path.join(SOURCE, folder), os.path.join(tree, folder), ignore=shutil.ignore_patterns("runs"), dirs_exist_ok=True)
        with open(os.path.join(tree, "docs", "cli.md"), "a") as file:
            file.write("[a](gone.md) [b](../lib/gone.cc) [c](metrics.md#gone)\n")
        with open(os.path.join(tree, "docs", "lost.md"), "w") as file:
            file.write("# Lost\n")
        done = build(tree, os.path.join(self.folder, "other"))
        self.assertEqual(done.returncode, 1, done.stderr)
        for said in ("docs/cli.md links gone.md: expected a file of the tree", "links ../lib/gone.cc", "does not contain an anchor '#gone'", "lost.md"):
            self.assertIn(said, done.stderr)
        self.assertEqual(done.stderr.count("WARNING"), 6, "no others, and of a link that leads nowhere two")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[2:], verbosity=2)
