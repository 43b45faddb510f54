"""examples/notebooks: each runs from top to end, as in Jupyter, and is stored without what it printed."""

import json
import os
import re

import nbformat
from nbclient import NotebookClient
from traitlets.config import Config

import harness

FOLDER = os.path.join("examples", "notebooks")


class NotebooksTest(harness.TroupeTestCase):
    def execute(self, name):
        """-> the outputs of each code cell, by MIME type: text together, of pictures how many"""
        notebook = nbformat.read(os.path.join(self.source, FOLDER, name), 4)
        environment = dict(os.environ, PYTHONPATH=os.path.join(self.source, "python"), TROUPE_PROGRAM=self.program,
                           JUPYTER_RUNTIME_DIR=self.path("jupyter"), IPYTHONDIR=self.path("ipython"))
        # An error of a cell is one of the test.
        sockets = Config({"KernelManager": {"transport": "ipc", "ip": self.path("kernel")}})
        NotebookClient(notebook, config=sockets, kernel_name="python3", timeout=240, resources={"metadata": {"path": self.folder}}).execute(env=environment)
        cells = []
        for cell in notebook.cells:
            if cell.cell_type == "code":
                said = {}
                for output in cell.outputs:
                    for kind, data in output.get("data", {"text/plain": output.get("text", "")}).items():
                        said[kind] = said.get(kind, "") + data
                cells.append(said)
        return cells

    @harness.by_command(os.environ.get("TROUPE_ACTING_LIBRARY"))
    def test_train_and_look(self):
        _, trained, curve, plot, evaluation, film, paths = self.execute("train_and_look.ipynb")
        self.assertIn("('finished', 500000)", trained["text/plain"])
        self.assertIn("<svg", curve["text/html"])
        self.assertGreater(float(re.search(r"mean=(-\d+\.\d+)", evaluation["text/plain"])[1]), -50, "it says that random play gives -80")
        self.assertTrue(film["image/gif"])
        self.assertTrue(plot["image/png"] and paths["image/png"])

    @harness.by_command(os.environ.get("TROUPE_ACTING_LIBRARY"))
    def test_own_environment(self):
        _, curve, returns, paths = self.execute("own_environment.ipynb")
        self.assertIn("<svg", curve["text/html"])
        learned, random = (float(number) for number in re.search(r"learned (\S+), random play (\S+)", returns["text/plain"]).groups())
        self.assertGreater(learned, random + 15)
        self.assertTrue(paths["image/png"])

    def test_they_are_stored_without_outputs(self):
        names = sorted(name for name in os.listdir(os.path.join(self.source, FOLDER)) if name.endswith(".ipynb"))
        self.assertEqual(names, ["own_environment.ipynb", "train_and_look.ipynb"])
        for name in names:
            with open(os.path.join(self.source, FOLDER, name)) as file:
                notebook = json.load(file)
            self.assertEqual(set(notebook["metadata"]), {"kernelspec", "language_info"}, name)
            for cell in notebook["cells"]:
                self.assertEqual((cell.get("outputs", []), cell.get("execution_count"), cell["metadata"]), ([], None, {}), name)


if __name__ == "__main__":
    harness.main()
