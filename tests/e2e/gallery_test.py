"""docs/gallery.md: its commands run, and its films and curves are what they are said to be, and small."""

import os
import re

from PIL import Image

import harness
import pages

MOST_BYTES = 200 * 1024  # of a picture
MOST_BYTES_OF_ALL = 1536 * 1024


class GalleryTest(pages.PageTestCase):
    def paste(self, line):
        # It is the command that is tried, not the training.
        return super().paste(line + " --set stop.env_steps=5000" if line.startswith("./troupe train") else line)

    def test_every_command_runs_and_makes_a_film_or_a_curve(self):
        made = [name for line in self.follow("docs", "gallery.md") for name in re.findall(r"--video (\S+)|--out (\S+)", line)]
        self.assertEqual(len(made), 12)
        for film, curve in made:
            with Image.open(self.path(film or curve)) as picture:
                self.assertEqual(picture.format, "GIF" if film else "PNG")
                # As large as the one that the page shows, which its command has made.
                with Image.open(os.path.join(self.source, "docs", "images", "gallery", film or curve)) as shown:
                    self.assertEqual(shown.size, picture.size)

    def test_films_move_and_everything_is_small(self):
        folder = os.path.join(self.source, "docs", "images", "gallery")
        shown = re.findall(r"\]\(images/gallery/(\S+)\)", self.document("docs", "gallery.md"))
        self.assertEqual(sorted(shown), sorted(os.listdir(folder)))
        sizes = {name: os.path.getsize(os.path.join(folder, name)) for name in shown}
        self.assertLessEqual(max(sizes.values()), MOST_BYTES, sizes)
        self.assertLessEqual(sum(sizes.values()), MOST_BYTES_OF_ALL, sizes)
        for name in shown:
            if name.endswith(".gif"):
                with Image.open(os.path.join(folder, name)) as film:
                    first = film.convert("RGB").tobytes()
                    film.seek(film.n_frames // 2)
                    self.assertNotEqual(film.convert("RGB").tobytes(), first, name)


if __name__ == "__main__":
    harness.main()
