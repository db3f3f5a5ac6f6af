# SPDX-License-Identifier: Apache-2.0
"""Every query of the Grafana dashboards and alert rules, run against a real Prometheus that scrapes a real server."""

import json
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest
import urllib.parse
import urllib.request

from access_test import ask
from free_ports import free_ports
from stator_process import MODEL_DIR, ROOT, Stator, eventually

PROMETHEUS = shutil.which("prometheus")
CHAT = {"model": "demo", "messages": [{"role": "user", "content": "What is a KV cache?"}], "max_tokens": 4}
# Of what this server has not had to do: these families appear with the first event.
MAY_BE_EMPTY = re.compile(r"stator_engine_kv_host_blocks|error_type=~|error_type=\"overload\"|up\{|dropped_total|pool_workers_gone|reload_failures|"
                          r"stator_access_|spans_sent|non_max")


def queries() -> list[tuple[str, str]]:
    """(where, query with Grafana's variables filled in)."""
    found = []
    for path in sorted((ROOT / "deploy/grafana").glob("*.json")):
        for panel in json.loads(path.read_text())["panels"]:
            for target in panel["targets"]:
                text = target["expr"].replace("$__rate_interval", "10s").replace("$model", ".*")
                found.append((f"{path.name}: {panel['title']}", text))
    return found


class Dashboards(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        assert PROMETHEUS, "Debian's package prometheus is needed: scripts/setup.sh test"
        cls.folder = tempfile.TemporaryDirectory()
        folder = pathlib.Path(cls.folder.name)
        cls.server = Stator("serve", str(MODEL_DIR), "--port", "0", "--host", "127.0.0.1", "--admin-port", "0", "--access-log", "/dev/null")
        admin = cls.server.ready["admin_port"]
        (folder / "prometheus.yml").write_text(
            f"global: {{scrape_interval: 500ms}}\nrule_files: [{ROOT}/deploy/prometheus/alerts.yml]\n"
            f"scrape_configs: [{{job_name: stator, static_configs: [{{targets: ['127.0.0.1:{admin}']}}]}}]\n")
        port = free_ports(1)[0]
        cls.url = f"http://127.0.0.1:{port}"
        cls.prometheus = subprocess.Popen(
            [PROMETHEUS, f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data",
             f"--web.listen-address=127.0.0.1:{port}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for _ in range(8):
            ask(cls.server.ready["port"], "POST", "/v1/chat/completions", CHAT)
        eventually(lambda: cls.query("count_over_time(stator_build_info[10s]) >= 3"), "three scrapes")
        for _ in range(8):
            ask(cls.server.ready["port"], "POST", "/v1/chat/completions", CHAT)
        eventually(lambda: cls.query("rate(dynamo_frontend_output_tokens_total[10s]) > 0"), "a rate")

    @classmethod
    def tearDownClass(cls):
        cls.prometheus.terminate()
        cls.prometheus.wait()
        cls.server.kill()
        cls.folder.cleanup()

    @classmethod
    def query(cls, text: str) -> list:
        with urllib.request.urlopen(f"{cls.url}/api/v1/query?query={urllib.parse.quote(text)}", timeout=20) as answer:
            return json.load(answer)["data"]["result"]

    def test_every_query_has_an_answer(self):
        for where, text in queries():
            with self.subTest(where=where, query=text):
                found = self.query(text)
                if not MAY_BE_EMPTY.search(text):
                    self.assertTrue(found)

    def test_rules_are_loaded_and_none_fires(self):
        with urllib.request.urlopen(f"{self.url}/api/v1/rules", timeout=20) as answer:
            rules = json.load(answer)["data"]["groups"][0]["rules"]
        self.assertGreaterEqual(len(rules), 8)
        for rule in rules:
            self.assertNotEqual(rule.get("health"), "err", rule)
            self.assertNotEqual(rule["state"], "firing", rule["name"])
            self.assertTrue((ROOT / rule["annotations"]["runbook"]).exists(), rule["name"])

    def test_files_are_what_the_table_says(self):
        made = subprocess.run(["python3", ROOT / "deploy/grafana/make_dashboards.py", "--check"], capture_output=True, text=True)
        self.assertEqual(made.returncode, 0, made.stdout)


if __name__ == "__main__":
    unittest.main()
