# SPDX-License-Identifier: MIT
"""What the shells complete. The weir they ask for names is a fake that knows three sets.

Arguments: the files of completions for bash and for zsh.
"""
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

BASH, ZSH = map(os.path.abspath, sys.argv[1:3])

STAND_IN = """#!/bin/sh
case "$1 $2" in
    "ls --names") shift 2 ;;
    "check --names") shift 2; set -- check "$@" ;;
    *) exit 9 ;;
esac
case "$*" in
    "") printf '%s\\n' alpha beta 'a b' ;;
    *) printf 'asked:%s\\n' "$(echo "$*" | tr ' ' ,)" ;;
esac
"""

BASH_TRY = """
source "$1"; shift
compopt() { :; }
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
_weir weir "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
((${#COMPREPLY[@]} == 0)) || printf '%s\\n' "${COMPREPLY[@]}"
"""

ZSH_TRY = """
zmodload zsh/zpty
zpty z zsh -f -i
zpty -w z "PS1=; unset zle_bracketed_paste; fpath=(${(q)1:h} \\$fpath); autoload -Uz compinit
compinit -u -D; zstyle ':completion:*' verbose no; stty -echo; echo rea''dy"
zpty -r -m z out '*ready*'
zpty -n -w z $2$'\\t\\C-a: <\\C-e>; echo do''ne\\C-m'
zpty -r -m z out '*<*>; echo*'
print -r -- $out
"""


class Completions(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.directory)
        path = os.path.join(self.directory, "weir")
        with open(path, "w", encoding="utf-8") as file:
            file.write(STAND_IN)
        os.chmod(path, 0o755)
        self.env = {**os.environ, "PATH": self.directory + ":" + os.environ["PATH"]}


class Bash(Completions):
    def complete(self, *words):
        done = subprocess.run(["bash", "-c", BASH_TRY, "bash", BASH, "weir", *words], env=self.env,
                              capture_output=True, text=True, timeout=60)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return sorted(set(done.stdout.splitlines()))

    def test_commands(self):
        self.assertEqual(self.complete(""), sorted(["exec", "hold", "stat", "top", "why", "serve", "ls", "rm",
                                                    "apply", "set", "check", "simulate", "plugin", "plugins", "--help", "--version"]))
        self.assertEqual(self.complete("s"), ["serve", "set", "simulate", "stat"])
        self.assertEqual(self.complete("plugin", ""), ["check", "new"])
        self.assertEqual(self.complete("plugin", "new", ""), ["algorithm", "balancer"])
        self.assertEqual(self.complete("plugin", "new", "algorithm", ""), [])
        self.assertEqual(self.complete("plugin", "new", "algorithm", "-l", ""), ["c", "c++", "rust"])
        self.assertEqual(self.complete("plugin", "new", "--l"), ["--language"])
        self.assertEqual(self.complete("plugin", "new", "--se"), [])
        self.assertEqual(self.complete("plugin", "check", "--o"), ["--only"])

    def test_options(self):
        self.assertEqual(self.complete("exec", "--t"), ["--timeout"])
        self.assertEqual(self.complete("simulate", "--su"), ["--subject", "--suggest"])
        self.assertEqual(self.complete("simulate", "--format", "c"), ["combined", "common", "csv"])
        self.assertEqual(self.complete("simulate", "-m", "t"), ["take", "try"])
        self.assertEqual(self.complete("exec", "-s", "x", "-a", "k=1", "--max"), ["--max-wait"])
        self.assertEqual(self.complete("rm", "-"), ["--file", "--force", "--help",
                                                    "--process-dir"])
        self.assertEqual(self.complete("hold", "-s", "x", "--f"), ["--fd", "--file"])
        self.assertEqual(self.complete("exec", "--exit"), ["--exit-code"])
        self.assertEqual(self.complete("stat", "--no"), ["--no-idle"])
        self.assertEqual(self.complete("top", "-s", "w"), ["waiting"])
        self.assertEqual(self.complete("stat", "--sort", ""), ["name", "waiting"])
        self.assertEqual(self.complete("stat", "-m", ""), [])
        self.assertEqual(self.complete("hold", "--fd", ""), [])
        for part in ("exec", "hold", "stat", "top", "ls", "rm", "check", "plugin", "plugins"):
            self.assertIn("--help", self.complete(part, "--"))

    def test_names(self):
        for words in (["exec", "-s"], ["exec", "--name"], ["exec", "-v", "--set"], ["hold", "-s"], ["stat"],
                      ["top", "alpha"], ["rm", "-f"]):
            self.assertEqual(self.complete(*words, ""), ["a\\ b", "alpha", "beta"], words)
            self.assertEqual(self.complete(*words, "al"), ["alpha"], words)

    def test_names_of_another_directory(self):
        self.assertEqual(self.complete("stat", "--process-dir", "/x", ""),
                         ["asked:--process-dir\\,/x"])
        self.assertEqual(self.complete("stat", "-f", "y", ""), ["asked:-f\\,y"])
        self.assertEqual(self.complete("ls", "--file", "=", "y", ""), [])
        self.assertEqual(self.complete("top", "--file", "=", "y", ""), ["asked:--file\\,y"])

    def test_names_of_a_configuration(self):
        self.assertEqual(self.complete("exec", "-f", "y", "-s", ""), ["asked:check\\,--\\,y"])
        self.assertEqual(self.complete("exec", "--file", "=", "y", "--process-dir", "p", "--set", ""),
                         ["asked:check\\,--\\,y"])
        self.assertEqual(self.complete("exec", "-d", "p", "-f", "y", "-s", ""),
                         ["asked:check\\,-d\\,p\\,--\\,y"])
        self.assertEqual(self.complete("exec", "-f", "y", "-l", "a:1", "--name", ""),
                         ["asked:-f\\,y"])  # defined by itself: what exists
        self.env["WEIR_CONFIG"] = "z"
        self.assertEqual(self.complete("exec", "-s", ""), ["asked:check\\,--\\,z"])
        self.assertEqual(self.complete("stat", ""), ["a\\ b", "alpha", "beta"])

    def test_the_command_of_exec(self):
        for words in (["--"], ["-s", "x"], ["-v", "-l", "a:1", "-s", "x", "--"]):
            self.assertIn("true", self.complete("exec", *words, "tru"), words)
        self.assertNotIn("true", self.complete("exec", "-l", "tru"))
        self.assertNotIn("true", self.complete("exec", "--subject", "tru"))
        self.assertIn("true", self.complete("exec", "-S", "someone", "tru"))
        self.assertIn("true", self.complete("exec", "-E", "75", "-s", "x", "tru"))
        self.assertNotIn("true", self.complete("hold", "-s", "x", "tru"))


@unittest.skipIf(shutil.which("zsh") is None, "there is no zsh")
class Zsh(Completions):
    def complete(self, line):
        done = subprocess.run(["zsh", "-f", "-c", ZSH_TRY, "zsh", ZSH, line], text=True,
                              env={**self.env, "TERM": "dumb"}, capture_output=True, timeout=60)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return done.stdout

    def test_commands(self):
        self.assertIn("weir plugin", self.complete("weir pl"))

    def test_plugin(self):
        self.assertIn("plugin new algorithm", self.complete("weir plugin new al"))
        self.assertIn("--language", self.complete("weir plugin new algorithm --lan"))
        self.assertIn("--only", self.complete("weir plugin check --on"))

    def test_options(self):
        self.assertIn("--retry-after", self.complete("weir exec --retr"))
        self.assertIn("--suggest", self.complete("weir simulate --sug"))
        self.assertIn("--exit-code", self.complete("weir exec --exi"))
        self.assertIn("--retry-after", self.complete("weir hold --retr"))
        self.assertIn("--sort waiting", self.complete("weir top --sort w"))
        self.assertIn("--openmetrics", self.complete("weir stat --open"))
        self.assertIn("--metrics", self.complete("weir serve --met"))
        self.assertIn("--plugin-dir", self.complete("weir check --plug"))
        for part in ("check", "plugin", "plugins"):  # they look at no shared set
            self.assertNotIn("--process-dir", self.complete(f"weir {part} --process-"))

    def test_names(self):
        self.assertIn("-s beta", self.complete("weir exec -s b"))
        self.assertIn("rm beta", self.complete("weir rm b"))

    def test_names_of_a_configuration(self):
        self.assertIn("asked:check,--,y", self.complete("weir exec -f y -s a").replace("\\", ""))
        self.env["WEIR_CONFIG"] = "z"
        self.assertIn("asked:check,--,z", self.complete("weir exec -s a").replace("\\", ""))

    def test_the_command_of_exec(self):
        self.assertIn("-- printenv", self.complete("weir exec -s x -- printe"))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
