#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""LoRA adapters of a folder are models from the start and reach an engine server when they are first asked for."""

import concurrent.futures
import pathlib
import tempfile
import unittest

from engine_control_test import Served, TALE
from stator_process import Http, eventually


class OnFirstUse(Served):
    load_route = "/v1/load_lora_adapter"

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        for name in ("poet", "clerk", "judge"):
            self.add(name)
        self.settings = ("--lora-folder", str(self.folder), "--max-loras", "2")
        super().setUp()

    def add(self, name: str) -> None:
        (self.folder / name).mkdir()
        (self.folder / name / "adapter_config.json").write_text("{}")

    def loaded(self) -> list[set[str]]:
        """What the servers themselves list."""
        return [{row["id"] for row in Http(server.port).get("/v1/models")[1]["data"]} - {"m"} for server in self.servers]

    def test_they_are_loaded_when_asked_for(self):
        self.assertEqual(self.listed(), {"m": None, "poet": "m", "clerk": "m", "judge": "m"})
        self.assertEqual(self.loaded(), [set(), set()])
        base, poem = self.ask("m"), self.ask("poet")
        self.assertNotEqual(base["choices"][0]["text"], poem["choices"][0]["text"], "the adapter answered")
        self.assertEqual(sorted(map(len, self.loaded())), [0, 1])
        self.assertEqual(self.ask("poet", TALE + "more")["model"], "poet")

    def test_those_who_come_together_wait_for_one_loading_and_nobody_else_does(self):
        with concurrent.futures.ThreadPoolExecutor(12) as pool:
            jobs = [pool.submit(self.ask, ("poet", "clerk", "m")[i % 3], f"{i} {TALE}") for i in range(12)]
            self.assertEqual([job.result()["model"] for job in jobs], ["poet", "clerk", "m"] * 4)
        for names in self.loaded():
            self.assertLessEqual(names, {"poet", "clerk"})

    def test_the_one_that_was_not_used_for_the_longest_makes_room(self):
        worker = self.workers[0]
        for name in ("poet", "clerk", "poet", "judge", "poet"):
            self.ask(name, headers={"x-stator-worker-instance-id": str(worker)})
        self.assertIn({"poet", "judge"}, self.loaded())
        self.assertEqual(set(self.listed()), {"m", "poet", "clerk", "judge"})

    def test_the_folder_changes_while_it_is_served(self):
        self.add("late")
        eventually(lambda: "late" in self.listed(), "it is a model")
        self.ask("late")
        self.ask("nobody", status=404)

    def test_describe_tells_them(self):
        self.assertEqual({row["lora_name"] for row in self.system.get("/v1/loras")[1]["loras"]}, {"poet", "clerk", "judge"})


class SglangOnFirstUse(OnFirstUse):
    dialect = "sglang"
    arguments = ("--lora", "yes")


if __name__ == "__main__":
    unittest.main()
