"""The documents of the checkout: every relative link leads somewhere, every setting is documented where it is read, and
what programs fill in has its place. Run by hand or by tools/test, as it looks at the whole tree:
`PYTHONPATH=. /usr/bin/python3 tests/e2e/docs_test.py`.
"""
import glob
import importlib.machinery
import importlib.util
import os
import re
import shutil
import subprocess
import tempfile
import unittest

from tests.support import cases
from tests.support.paths import ROOT

LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
SETTING = re.compile(r"SANDBOX_[A-Z0-9_]+")

# Which page documents what the C files of a room read.
PAGES = {"server": "docs/lease-server.md", "gateway": "docs/gateway.md"}


def read(path):
    with open(os.path.join(ROOT, path), encoding="utf-8") as file:
        return file.read()


def documents():
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", "-z", "*.md"], cwd=ROOT, check=True,
                            stdout=subprocess.PIPE, text=True).stdout.split("\0")
    return [path for path in listed if path and os.path.exists(os.path.join(ROOT, path))]


def without_code(text):
    return re.sub(r"^ *```.*?^ *```", "", text, flags=re.M | re.S)


def anchors(text):
    """The anchors of the headings, made as repository hosts make them."""
    found = set()
    for heading in re.findall(r"^#+ +(.+?)\s*$", without_code(text), re.M):
        found.add(re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-"))
    return found


def settings_read(folder):
    """Names that the C files of a folder ask the configuration for."""
    found = set()
    for path in glob.glob(os.path.join(ROOT, folder, "**", "*.c"), recursive=True):
        with open(path, encoding="utf-8") as file:
            found.update(re.findall(r'"(SANDBOX_[A-Z0-9_]+)"', file.read()))
    return found


def settings_documented(page):
    """Names in the first cell of a table row; `A`, `B` name two."""
    found = set()
    for line in read(page).splitlines():
        if line.startswith("|"):
            found.update(SETTING.findall(line.split("|")[1]))
    return found


class Links(unittest.TestCase):
    def test_every_relative_link_leads_somewhere(self):
        broken = []
        for path in documents():
            text = read(path)
            for target in LINK.findall(without_code(text)):
                if re.match(r"[a-z]+:", target):
                    continue
                name, _, anchor = target.partition("#")
                full = os.path.normpath(os.path.join(os.path.dirname(path), name)) if name else path
                if not os.path.exists(os.path.join(ROOT, full)):
                    broken.append("%s: %s" % (path, target))
                elif anchor and anchor not in anchors(read(full)):
                    broken.append("%s: %s has no such heading" % (path, target))
        self.assertEqual(broken, [])

    def test_every_page_can_be_reached_from_the_index(self):
        linked = {os.path.normpath(os.path.join("docs", target.partition("#")[0])) for target in LINK.findall(read("docs/README.md"))}
        pages = {path for path in documents() if path.startswith("docs/")} - {"docs/README.md"}
        self.assertEqual(pages - linked, set())

    def test_every_picture_says_what_it_shows(self):
        for path in glob.glob(os.path.join(ROOT, "docs", "pictures", "*.svg")):
            if os.path.basename(path) != "latency.svg":  # the benchmark's own
                self.assertIn("<title", read(path), path)


class Settings(unittest.TestCase):
    def test_each_program_documents_what_it_reads(self):
        for folder, page in PAGES.items():
            with self.subTest(folder):
                self.assertEqual(settings_documented(page), settings_read(folder))

    def test_help_names_what_the_page_names(self):
        self.assertEqual(set(re.findall(r'"  (SANDBOX_[A-Z_]+)', read("server/program.c"))) - settings_documented(PAGES["server"]), set())
        text = read("gateway/main.c")
        named = set(re.findall(r'"  (SANDBOX_[A-Z_]+)', text))
        for name, last in re.findall(r"(SANDBOX_[A-Z_]+_)CERT, _(KEY)", text):
            named.add(name + last)
        self.assertEqual(named, settings_documented(PAGES["gateway"]))


class Leasectl(unittest.TestCase):
    def test_the_manual_page_has_no_mistakes(self):
        done = subprocess.run(["man", "--warnings", "-l", "-Tutf8", os.path.join(ROOT, "tools/leasectl/leasectl.1")], check=True,
                              env=dict(os.environ, MANPAGER="cat", LC_ALL="C.UTF-8"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.assertEqual(done.stderr, "")
        self.assertIn("LEASECTL(1)", done.stdout)

    def test_the_manual_page_names_what_help_names(self):
        page = read("tools/leasectl/leasectl.1").replace("\\-", "-")
        text = read("tools/leasectl/main.c")
        options = set(re.findall(r"--[a-z-]+", text)) | set(re.findall(r'\{"([a-z-]+)", (?:no|required)_argument', text))
        self.assertTrue(options)
        self.assertEqual({option for option in options if option.lstrip("-") not in page}, set())
        self.assertEqual(set(SETTING.findall(text)) - set(SETTING.findall(page)), set())


class Readme(unittest.TestCase):
    def test_the_benchmark_finds_its_place(self):
        text = read("README.md")
        for mark in ("<!-- bench:begin -->", "<!-- bench:end -->"):
            self.assertEqual(text.count(mark), 1, mark)
        self.assertLess(text.index("bench:begin"), text.index("bench:end"))
        loader = importlib.machinery.SourceFileLoader("bench_run", os.path.join(ROOT, "tools/bench/run"))
        bench = importlib.util.module_from_spec(importlib.util.spec_from_loader("bench_run", loader))
        loader.exec_module(bench)
        with tempfile.TemporaryDirectory() as folder:
            copy = shutil.copy(os.path.join(ROOT, "README.md"), folder)
            for words in ("| first |", "| second |"):
                bench.put_into_readme(words, copy)
                with open(copy, encoding="utf-8") as file:
                    filled = file.read()
                self.assertEqual(re.sub(r"(?<=bench:begin -->\n).*?(?=\n<!-- bench:end)", "", text, flags=re.S),
                                 filled.replace(words, ""))


if __name__ == "__main__":
    cases.main()
