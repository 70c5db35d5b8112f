#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""`weir plugin new`: what it writes, all of it or nothing, and what it refuses. docs/plugins.md shows it word
for word. That it can be built and used is seen by test_kit.sh, against an installed weir.

usage: test_plugin_new.py WEIR SOURCE_DIRECTORY
"""

import os
import pathlib
import re
import resource
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import unittest

WEIR, SOURCE = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2])
SOURCES = {"c": "plugin.c", "c++": "plugin.cc", "rust": "plugin.rs"}
COMMON = {".gitignore", "Makefile", "README.md", "example.yaml", "test.c"}
RUST = {"Cargo.toml", "weir.rs", "layout.c", "layout.rs"}
STATE_ID = re.compile(r"0x[0-9a-f]{16}")


class New(unittest.TestCase):
    """Each test has a directory of its own, in which the command runs."""

    def setUp(self):
        directory = tempfile.TemporaryDirectory(prefix="weir-")
        self.addCleanup(directory.cleanup)
        self.here = pathlib.Path(directory.name)

    def new(self, *arguments, status=0, **options):
        done = subprocess.run([WEIR, "plugin", "new", *arguments], cwd=self.here, capture_output=True, text=True,
                              timeout=60, check=False, **options)
        self.assertEqual(done.returncode, status, done.stderr)
        return done.stderr if status else done.stdout

    def is_refused(self, message, *arguments, status=2):
        before = sorted(self.here.rglob("*"))
        self.assertIn(message, self.new(*arguments, status=status))
        self.assertEqual(sorted(self.here.rglob("*")), before)

    def files(self, name):
        return {path.name: path.read_text(encoding="utf-8") for path in (self.here / name).iterdir()}


class Written(New):
    def test_each_kind_in_each_language(self):
        for kind in "algorithm", "balancer":
            for language, source in SOURCES.items():
                name = f"acme.{kind}_{len(language)}"
                self.assertEqual(self.new(kind, "--language", language, name), f"{name}: written. Next, in it: make check\n")
                files = self.files(name)
                self.assertEqual(set(files), COMMON | {source} | (RUST if language == "rust" else set()))
                self.assertIn(name, files[source])
                self.assertIn(f"NAME = {name}\n", files["Makefile"])
                self.assertIn(f": {name}", files["example.yaml"])
                self.assertIn(source, files["README.md"])
                for file, text in files.items():
                    self.assertIsNone(re.search(r"__(?!VA_)[A-Z_]+__", text), file)

    def test_each_byte_is_that_of_the_template(self):
        self.new("algorithm", "acme.tempo", "-l", "rust")
        for file, text in self.files("acme.tempo").items():
            folder = "algorithm" if file in ("plugin.rs", "test.c", "example.yaml", "README.md") else "rust"
            template = (SOURCE / "tools/templates" / folder / file.removeprefix(".")).read_text(encoding="utf-8")
            for word, value in ("__NAME__", "acme.tempo"), ("__SOURCE__", "plugin.rs"), ("__STATE_ID__", "0x" + "0" * 16):
                template = template.replace(word, value)
            self.assertEqual(STATE_ID.sub("ID", text), STATE_ID.sub("ID", template), file)

    def test_c_is_the_default(self):
        self.new("balancer", "acme.a")
        self.assertIn("plugin.c", self.files("acme.a"))

    def test_each_state_id_is_another(self):
        ids = set()
        for i in range(8):
            self.new("algorithm", f"acme.a{i}")
            ids.add(STATE_ID.search(self.files(f"acme.a{i}")["plugin.c"])[0])
        self.assertEqual(len(ids), 8)

    def test_the_directory_is_chosen(self):
        self.new("algorithm", "acme.a", "--directory", "elsewhere")
        self.assertEqual(os.listdir(self.here), ["elsewhere"])
        (self.here / "empty").mkdir()
        self.new("algorithm", "acme.a", "-d", "empty")
        self.assertEqual(self.files("empty").keys(), self.files("elsewhere").keys())

    def test_the_current_directory_is_one(self):
        (self.here / "empty").mkdir()
        self.here /= "empty"
        self.new("algorithm", "acme.a", "-d", ".")
        self.assertIn("plugin.c", self.files("."))

    def test_others_cannot_write_there(self):
        self.new("algorithm", "acme.a", preexec_fn=lambda: os.umask(0))
        for path in self.here / "acme.a", *(self.here / "acme.a").iterdir():
            self.assertEqual(stat.S_IMODE(path.stat().st_mode) & 0o022, 0, path)

    def test_names_up_to_their_bound(self):
        name = "v." + "n" * 62
        self.new("algorithm", name)
        self.assertIn(f'"{name}"', self.files(name)["plugin.c"])


class Refused(New):
    def test_wrong_usage(self):
        self.is_refused("no kind is given")
        self.is_refused("the kind is algorithm or balancer, not backend", "backend", "acme.a")
        self.is_refused("no name is given: VENDOR.NAME", "algorithm")
        self.is_refused("one name is enough: what is more", "algorithm", "acme.a", "more")
        self.is_refused("--language takes c, c++ or rust, not go", "algorithm", "acme.a", "--language", "go")
        self.is_refused("unrecognized option '--lenguage", "algorithm", "acme.a", "--lenguage=c")

    def test_a_name_without_a_vendor(self):
        self.is_refused("the name has no vendor. Those without one are weir's own; right would be VENDOR.NAME, as "
                        "acme.quota\n", "algorithm", "quota")

    def test_other_names(self):
        for name in ("a/b", "../a.b", "acme./b", "/acme.b", "acme.a.b", ".a", "a.", ".", "..", "", "Acme.a", "acme.a b",
                     "acme.a-b", "acme.ü", "acme.a\n"):
            self.is_refused(f"the name is to be VENDOR.NAME, each of letters a-z, digits and _, as acme.quota, not {name}",
                            "algorithm", name)
        self.is_refused("the name has more than 64 bytes", "algorithm", "v." + "n" * 63)
        self.is_refused("the name has more than 64 bytes", "algorithm", "v." + "n" * 100000)

    def test_help(self):
        self.assertTrue(self.new("--help").startswith("Usage: weir plugin new algorithm|balancer"))
        for arguments, status, words in ((["--help"], 0, "weir plugin new"), ([], 2, "no command is given: new or check"),
                                         (["old"], 2, "unknown command old"), (["--old"], 2, "unknown option --old")):
            done = subprocess.run([WEIR, "plugin", *arguments], capture_output=True, text=True, timeout=60, check=False)
            self.assertEqual(done.returncode, status)
            self.assertIn(words, done.stderr if status else done.stdout)


class AllOrNothing(New):
    def test_nothing_is_overwritten(self):
        (self.here / "acme.a").mkdir()
        (self.here / "acme.a" / "Makefile").write_text("mine", encoding="utf-8")
        self.is_refused("acme.a: is there, and not empty: nothing is overwritten", "algorithm", "acme.a", status=3)
        self.assertEqual(self.files("acme.a"), {"Makefile": "mine"})

    def test_a_hidden_file_counts(self):
        (self.here / "acme.a").mkdir()
        (self.here / "acme.a" / ".git").touch()
        self.is_refused("not empty", "algorithm", "acme.a", status=3)

    def test_no_directory(self):
        (self.here / "acme.a").touch()
        self.is_refused("acme.a: is there, and no directory", "algorithm", "acme.a", status=3)
        self.is_refused("acme.a/x: Not a directory", "algorithm", "acme.a", "-d", "acme.a/x", status=3)
        self.is_refused("none/x: No such file or directory", "algorithm", "acme.a", "-d", "none/x", status=3)
        self.is_refused(": No such file or directory", "algorithm", "acme.a", "-d", "", status=3)

    def test_no_link_is_followed(self):
        (self.here / "target").mkdir()
        for link, target in ("acme.a", "target"), ("acme.b", "missing"), ("acme.c", "acme.c"):
            (self.here / link).symlink_to(target)
            self.is_refused(f"{link}: is there, and no directory", "algorithm", link, status=3)

    def test_a_place_that_cannot_be_written(self):
        self.is_refused("/proc/acme.a: ", "algorithm", "acme.a", "-d", "/proc/acme.a", status=3)

    def test_a_full_disk(self):
        """A file may have so many bytes; each of the larger ones fails, at its beginning, in between or at its end."""
        def limit(size):
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))

        self.new("algorithm", "acme.a", "-l", "rust", "-d", "whole")
        sizes = sorted({(self.here / "whole" / name).stat().st_size for name in os.listdir(self.here / "whole")})
        shutil.rmtree(self.here / "whole")
        (self.here / "empty").mkdir()
        for size in (0, 1, *(size - 1 for size in sizes)):
            for directory, remains in ("made", []), ("empty", []):
                said = self.new("algorithm", "acme.a", "-l", "rust", "-d", directory, status=3,
                                preexec_fn=lambda size=size: limit(size))
                self.assertRegex(said, rf"^weir plugin new: {directory}/[\w.]+: File too large\n$")
                self.assertEqual(os.listdir(self.here), ["empty"])
                self.assertEqual(os.listdir(self.here / "empty"), remains)
        self.new("algorithm", "acme.a", "-l", "rust", preexec_fn=lambda: limit(sizes[-1]))

    def test_no_descriptors(self):
        """With fewer descriptors than it needs, whatever it fails at, nothing is left."""
        failed = 0
        for n in range(3, 12):
            done = subprocess.run([WEIR, "plugin", "new", "algorithm", "acme.a"], cwd=self.here, capture_output=True, text=True,
                                  timeout=60, check=False, preexec_fn=lambda n=n: resource.setrlimit(resource.RLIMIT_NOFILE, (n, n)))
            if done.returncode == 3:
                failed += 1
                self.assertIn("acme.a: Too many open files", done.stderr.replace("/plugin.c", ""))
            if done.returncode != 0:
                self.assertEqual(os.listdir(self.here), [])
            shutil.rmtree(self.here / "acme.a", ignore_errors=True)
        self.assertGreater(failed, 0)


class Documents(New):
    def section(self, title):
        text = (SOURCE / "docs/plugins.md").read_text(encoding="utf-8")
        return re.search(rf"^## {title}\n(.*?)(?=^## |\Z)", text, re.M | re.S)[1]

    def blocks(self, title, language):
        return re.findall(rf"^```{language}\n(.*?)^```$", self.section(title), re.M | re.S)

    def shows(self, title, kind, name):
        """The blocks of a section, with a blank line in between, are the whole plugin."""
        self.new(kind, name)
        files = self.files(name)
        shown = STATE_ID.sub("ID", "\n".join(self.blocks(title, "c")))
        self.assertEqual(shown, STATE_ID.sub("ID", files["plugin.c"]))
        return files

    def test_the_algorithm(self):
        files = self.shows("An algorithm", "algorithm", "acme.tempo")
        self.assertEqual(self.blocks("An algorithm", "yaml"), [files["example.yaml"]])

    def test_the_balancer(self):
        self.shows("A balancer", "balancer", "acme.cheapest")

    def test_the_reference(self):
        self.new("algorithm", "acme.tempo")
        blocks = self.blocks("Tests", "c")
        self.assertEqual(len(blocks), 1)
        self.assertIn(blocks[0], self.files("acme.tempo")["test.c"])

    def test_rust_knows_the_headers(self):
        """layout.c, with which `make check` compares weir.rs, has each field of the headers, and their minor version."""
        layout = (SOURCE / "tools/templates/rust/layout.c").read_text(encoding="utf-8")
        minors = set()
        for header in "plugin", "algorithm", "balancer":
            text = re.sub(r"/\*.*?\*/", "", (SOURCE / f"include/weir/{header}.h").read_text(encoding="utf-8"), flags=re.S)
            minors.update(re.findall(r"WEIR_PLUGIN_ABI_MINOR (\d+)", text))
            for struct, body in re.findall(r"^struct (\w+) \{\n(.*?)^\};", text, re.M | re.S):
                fields = re.findall(r"\(\*(\w+)\)\(", body)
                plain = re.sub(r"\(\*\w+\)\([^;]*;", "", body)
                fields += re.findall(r"(\w+)(?:\[\w+\])?[,;]", plain)
                self.assertTrue(fields, struct)
                for field in fields:
                    self.assertRegex(layout, rf"FIELD\({struct},\s+{field}\)")
        weir = (SOURCE / "tools/templates/rust/weir.rs").read_text(encoding="utf-8")
        self.assertEqual(minors, {re.search(r"ABI_MINOR: u32 = (\d+);", weir)[1]})


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
