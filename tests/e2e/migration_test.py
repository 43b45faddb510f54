"""docs/migration: what the pages have for Troupe runs, and every name of theirs gives the error that a page says."""

import os
import re

import harness
import pages

# Those of libraries that train have a table of their names.
PAGES = {"rllib": "RLlib", "xuance": "XuanCe", "skrl": "skrl", "stable_baselines3": "Stable-Baselines3"}


class MigrationTest(pages.PageTestCase):
    def paste(self, line):
        # It is the command that is tried, not the training.
        return super().paste(line + " --set stop.env_steps=4000" if re.match(r"\./troupe train \S+ --name", line) else line)

    def write(self, name, text):
        return super().write(name, text.replace("env_steps=200000", "env_steps=4000"))

    def names(self, page):
        """[(names of theirs, ours, note)] of a page's table."""
        table, = re.findall(rf"^\| {PAGES[page]} \| here \| \|\n\|---\|---\|---\|\n((?:\|.*\n?)+)", self.document("docs", "migration", f"{page}.md"), re.M)
        rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()]
        return [(re.findall(r"`(\w+)`", theirs), ours.strip("`"), note) for theirs, ours, note in rows]

    @harness.by_command(os.environ.get("TROUPE_ACTING_LIBRARY"))
    def test_our_side_runs(self):
        for page in ("pettingzoo", *PAGES):
            with self.subTest(page):
                self.assertGreaterEqual(len(self.follow("docs", "migration", f"{page}.md")), 3)
                os.rename(self.path("runs"), self.path(f"runs_{page}"))

    def test_every_name_of_theirs_gives_the_error_that_the_page_says(self):
        config = self.write("run.yaml", "env: {name: mpe/simple_spread}\n")
        ours = {key.rsplit(".", 1)[-1] for key in re.findall(r"^\| `([\w.]+)` \|", self.troupe("config", "defaults", "--markdown").stdout, re.M)}
        for page in PAGES:
            names = self.names(page)
            self.assertGreater(sum(len(theirs) for theirs, _, _ in names), 30, page)
            for theirs, key, note in names:
                for name in theirs:
                    with self.subTest(page=page, name=name):
                        if key == "the same":
                            self.assertIn(name, ours)
                            continue
                        error = self.troupe("config", "show", config, "--set", f"algorithm.{name}=1", ok=False).stderr.strip()
                        said = f"there is no such choice here: {note}; leave it out" if key == "none" else f'here it is "{key}"' + (f", {note}" if note else "")
                        self.assertTrue(error.endswith("): " + said), f"{error!r} does not end with {said!r}")


if __name__ == "__main__":
    harness.main()
