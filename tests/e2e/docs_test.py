#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the binary says about itself: generated documentation, help of every command, completions."""

import os
import pathlib
import re
import shlex
import subprocess
import tempfile
import unittest

from stator_process import BINARY, ROOT, clean_environment

CONFIGURATION = ROOT / "docs" / "configuration.md"


def stator(*arguments: str) -> str:
    return subprocess.run(
        [BINARY, *arguments], env=clean_environment(HOME="/nonexistent"), capture_output=True, text=True, timeout=300,
        check=True).stdout


def command_names() -> list[str]:
    return re.findall(r"^  ([a-z]+)  ", stator("--help").split("ubcommands:", 1)[1], re.MULTILINE)


class Docs(unittest.TestCase):
    def test_configuration_md_is_what_the_binary_prints(self):
        self.assertEqual(CONFIGURATION.read_text(), stator("config", "--markdown"),
                         "run: stator config --markdown > docs/configuration.md")

    def test_every_command_has_help_with_its_flags_explained(self):
        names = command_names()
        self.assertGreaterEqual(len(names), 9)
        for name in names:
            text = stator(name, "--help")
            self.assertIn("--help", text)
            for line in text.splitlines():
                if match := re.match(r"  (--[\w-]+)\s*(.*)", line):
                    self.assertTrue(match[2] or len(match[1]) > 24, f"{name} {line}")

    def test_the_commands_of_the_simulation_page_work_as_written(self):
        page = (ROOT / "docs" / "reference" / "simulation.md").read_text()
        blocks = re.findall(r"^```(\w*)\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
        commands = [line for _, block in blocks for line in block.splitlines() if line.startswith("stator sim ")]
        settings = [block for language, block in blocks if language == "yaml"]
        self.assertGreaterEqual(len(commands), 10)
        with tempfile.TemporaryDirectory() as folder:
            os.symlink(ROOT / "examples", os.path.join(folder, "examples"))
            for command in commands:
                done = subprocess.run(
                    [BINARY, *shlex.split(command)[1:]], cwd=folder, env=clean_environment(HOME="/nonexistent"),
                    capture_output=True, text=True, timeout=300)
                self.assertEqual(done.returncode, 0, f"{command}\n{done.stderr}")
                self.assertTrue(done.stdout, command)
            for name in ("report.html", "sweep.html", "compare.html"):
                plots = pathlib.Path(folder, name).read_text()
                self.assertIn("<svg", plots)
                self.assertNotIn("<script", plots)
            self.assertEqual(len(pathlib.Path(folder, "sweep.jsonl").read_text().splitlines()), 6)
            pathlib.Path(folder, "sim.yaml").write_text(settings[0])
            subprocess.run([BINARY, "sim", "examples/chat.jsonl", "--config", "sim.yaml"], cwd=folder, check=True,
                           env=clean_environment(HOME="/nonexistent"), capture_output=True, timeout=300)

    def test_completions_know_every_command_and_its_flags(self):
        for shell in ("bash", "zsh", "fish"):
            script = stator("completion", shell)
            for name in command_names():
                self.assertIn(name, script)
            self.assertIn("sim-speedup", script)

    def test_bash_completes_commands_and_flags(self):
        script = stator("completion", "bash")
        ask = 'COMP_WORDS=(stator {words}); COMP_CWORD={at}; _stator; printf "%s\\n" "${{COMPREPLY[@]}}"'
        for words, at, expected in (("ser", 1, "serve"), ("serve --sim-sp", 2, "--sim-speedup")):
            done = subprocess.run(
                ["bash", "-c", script + ask.format(words=words, at=at)], capture_output=True, text=True, check=True)
            self.assertIn(expected, done.stdout.splitlines())


if __name__ == "__main__":
    unittest.main()
