#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a person sees who types or configures something wrong: one line that names it, and exit status 2."""

import json
import pathlib
import shutil
import socket
import subprocess
import tempfile
import unittest

from gguf_file import byte_vocabulary, gguf
from stator_process import BINARY, MODEL_DIR, clean_environment


class CliErrors(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="stator-e2e-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def run_stator(self, *arguments, env=None):
        return subprocess.run(
            [BINARY, *arguments], env=clean_environment(HOME=str(self.folder), **(env or {})), stdin=subprocess.DEVNULL,
            capture_output=True, text=True, timeout=300)

    def assert_refused(self, *arguments, names, env=None):
        """Exit status 2 and exactly one line beside log lines, with all of `names` in it."""
        done = self.run_stator(*arguments, env=env)
        self.assertEqual(done.returncode, 2, done.stderr)
        lines = [line for line in done.stderr.splitlines() if line.startswith("stator: ")]
        self.assertEqual(len(lines), 1, done.stderr)
        self.assertEqual(len([line for line in done.stderr.splitlines() if not self.is_log_line(line)]), 1, done.stderr)
        for name in names:
            self.assertIn(name, lines[0])
        self.assertEqual(done.stdout, "")

    def test_an_address_that_others_reach_needs_tls_or_an_explicit_word(self):
        discovery = ("--discovery", f"file:{self.folder}/cluster")
        for host in ("0.0.0.0", "::", "192.0.2.7", "some.host"):
            self.assert_refused("worker", str(MODEL_DIR), "--engine", "sim", *discovery, "--worker-listen-host", host,
                                names=["worker.listen_host", host, "rpc.tls_cert_path", "--rpc-insecure"])
        self.assert_refused("frontend", "--port", "0", *discovery, "--frontend-resumable-streams", "true",
                            "--frontend-journal-host", "0.0.0.0", names=["frontend.journal_host", "rpc.tls_cert_path"])
        self.assert_refused("frontend", "--port", "0", *discovery, "--router-replica-sync", "true",
                            "--router-replica-sync-host", "0.0.0.0", names=["router.replica_sync_host", "rpc.tls_cert_path"])

    @staticmethod
    def is_log_line(line: str) -> bool:
        return any(f" {level} " in line[:60] for level in ("DEBUG", "INFO", "WARN", "ERROR", "debug", "info", "warn", "error")) \
            and not line.startswith("stator: ")

    def checkpoint(self) -> pathlib.Path:
        copy = self.folder / "model"
        shutil.copytree(MODEL_DIR, copy)
        return copy

    def edit_config(self, model: pathlib.Path, **fields):
        config = json.loads((model / "config.json").read_text())
        (model / "config.json").write_text(json.dumps(config | fields))

    # Command line and settings

    def test_unknown_flags_commands_and_missing_arguments(self):
        self.assert_refused("serve", str(MODEL_DIR), "--no-such-flag", names=["--no-such-flag"])
        self.assert_refused("no-such-command", names=["no-such-command"])
        self.assert_refused("srve", names=["srve", "did you mean 'serve'?"])
        self.assert_refused("serve", names=["MODEL"])
        self.assert_refused(names=["stator --help"])

    def test_a_file_that_is_no_model_folder(self):
        self.assert_refused("serve", str(MODEL_DIR / "config.json"), names=["config.json", "is a file", ".gguf"])
        file = self.folder / "tiny.gguf"
        file.write_bytes(gguf(byte_vocabulary()))
        self.assert_refused("serve", str(file), names=["tiny.gguf", "--engine llamacpp"])
        file.write_bytes(b"GGUF")
        self.assert_refused("serve", str(file), names=["tiny.gguf"])

    def test_bad_values_name_the_flag_and_what_is_possible(self):
        self.assert_refused("serve", str(MODEL_DIR), "--port", "99999", names=["port", "65535"])
        self.assert_refused("serve", str(MODEL_DIR), "--port", "x", names=["port", "x"])
        self.assert_refused("serve", str(MODEL_DIR), "--engine", "warp", names=["engine", "warp", "cpu", "sim"])
        self.assert_refused("serve", str(MODEL_DIR), "--http-body-timeout", "5 parsecs", names=["body", "parsecs"])
        self.assert_refused("serve", str(MODEL_DIR), "--log", "loud", names=["log.filter", "loud"])
        self.assert_refused("serve", str(MODEL_DIR), "--host", "not-an-address", "--port", "0", names=["not-an-address", "host"])
        self.assert_refused("serve", str(MODEL_DIR), "--cors-origins", "https://a.example/x", "--port", "0",
                            names=["http.cors_origins", "https://a.example/x"])

    def test_traces_that_are_none_are_named_with_their_line(self):
        trace = self.folder / "trace.jsonl"
        line = '{"timestamp":0,"input_length":600,"output_length":1,"hash_ids":[1,2],"more":{"a":[1]}}'
        for text, names in (
                ("", ["trace.jsonl", "empty"]),
                (" \r\n\n", ["trace.jsonl", "empty"]),
                (line + "\n" + line[:30], ["trace.jsonl:2:"]),
                (line.replace("[1,2]", "[1,-2]"), ["trace.jsonl:1:", "hash_ids"]),
                (line.replace("hash_ids", "ids"), ["trace.jsonl:1:", "hash_ids"]),
        ):
            trace.write_text(text)
            for command in ("index-bench", "route-replay"):
                self.assert_refused(command, str(trace), names=names)
        for command in ("index-bench", "route-replay"):
            self.assert_refused(command, str(self.folder), names=["empty, or no file"])
            self.assert_refused(command, str(self.folder / "absent.jsonl"), names=["absent.jsonl"])
            trace.write_text(line + "\r\n \r\n" + line)
            self.assert_refused(command, str(trace), "--tokens-per-block", "100", names=["--tokens-per-block", "512"])
            self.assert_refused(command, str(trace), "--workers", "0", names=["--workers", "0"])
            self.assertEqual(self.run_stator(command, str(trace), "--tokens-per-block", "64", "--json").returncode, 0)

    def test_graphs_of_requests_that_cannot_run_are_named_with_file_line_and_field(self):
        trace = self.folder / "agents.jsonl"
        first = '{"request_id":"a","wait_for":[],"timestamp":0,"input_length":9,"output_length":2}\n'
        second = first.replace('"a"', '"b"').replace("[]", '["%s"]')
        for text, names in ((first + second % "c", ["agents.jsonl:2: wait_for", "'c'"]),
                            (first + second % "b", ["agents.jsonl:2: wait_for", "circle"]),
                            (first + first, ["agents.jsonl:2: request_id", "twice"])):
            trace.write_text(text)
            self.assert_refused("sim", str(trace), names=names)
        self.assert_refused("sim", str(self.folder), names=[str(self.folder), "is a folder"])

    def test_simulations_that_make_no_sense_are_refused_before_they_begin(self):
        made_up = ("sim", "--requests", "2")
        for more, names in (
                (("--scale-prefill-at", "1s=2"), ["--scale-prefill-at", "--prefill-workers"]),
                (("--timing", "polynomial:p0=1e300"), ["p0", "1000000"]),
                (("--timing", "polynomial:p2=-5"), ["p2", "-5"]),
                (("--sweep", "workers=1,2", "--compare", "router=kv,random"), ["--sweep", "--compare"]),
                (("--sweep", "report-json=a,b"), ["report-json", "where results go"]),
                (("--sweep", "workers=1,2", "--per-request-jsonl", str(self.folder / "x")), ["--per-request-jsonl", "--sweep"]),
                (("--compare", "workers=1,2", "--emit-trace", str(self.folder / "x")), ["--emit-trace", "--compare"]),
                (("--sweep-csv", str(self.folder / "x")), ["--sweep-csv", "--sweep"]),
                (("--report-json", "-", "--per-request-jsonl", "-"), ["'-'"]),
                (("--speedup", "1e-300"), ["speedup", "1e-06"]),
                (("--arrival-speedup", "1e-9", "--rate", "0.1"), ["100 years", "speed-ups"]),
                (("--prefill-workers", "1", "--kv-bytes-per-token", "1e12", "--link-gb-per-s", "1e-6"), ["100 years", "bandwidths"]),
        ):
            self.assert_refused(*made_up, *more, names=names)
        self.assertFalse((self.folder / "x").exists())

    def test_bad_environment_values_name_the_variable(self):
        self.assert_refused("serve", str(MODEL_DIR), env={"STATOR_HTTP_PORT": "many"}, names=["STATOR_HTTP_PORT", "many"])

    def test_yaml_errors_name_the_file_and_the_key(self):
        config = self.folder / "stator.yaml"
        for text, names in (
                ("http:\n  prot: 8000\n", ["stator.yaml", "http.prot"]),
                ("http:\n  port: many\n", ["stator.yaml", "http.port", "many"]),
                ("http: [1, 2\n", ["stator.yaml"]),
        ):
            config.write_text(text)
            self.assert_refused("serve", str(MODEL_DIR), "--config", str(config), names=names)
        self.assert_refused("serve", str(MODEL_DIR), "--config", str(self.folder / "absent.yaml"), names=["absent.yaml"])

    def test_a_taken_port_is_named_before_the_model_is_loaded(self):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = str(taken.getsockname()[1])
            self.assert_refused("serve", str(MODEL_DIR), "--host", "127.0.0.1", "--port", port, names=[port, "port"])

    def test_separate_processes_need_discovery(self):
        self.assert_refused("frontend", names=["--discovery file:DIR"])
        self.assert_refused("worker", str(MODEL_DIR), names=["--discovery file:DIR"])
        self.assert_refused("frontend", "--discovery", "carrier-pigeon", names=["discovery", "carrier-pigeon"])

    # Models

    def assert_model_refused(self, model, *names, engine="cpu"):
        self.assert_refused("serve", str(model), "--engine", engine, "--port", "0", "--host", "127.0.0.1", names=names)

    def test_a_model_that_does_not_exist_is_named(self):
        self.assert_model_refused(self.folder / "absent", "absent")
        self.assert_refused("serve", "org/absent", "--port", "0", "--hub-offline", names=["org/absent", "offline"])

    def test_an_empty_folder_names_the_file_it_lacks(self):
        self.assert_model_refused(self.folder, "tokenizer.json")

    def test_each_missing_file_is_named(self):
        for name in ("tokenizer.json", "config.json", "model.safetensors"):
            with self.subTest(file=name):
                model = self.checkpoint()
                (model / name).unlink()
                self.assert_model_refused(model, name)
                shutil.rmtree(model)

    def test_truncated_files_are_named(self):
        for name in ("tokenizer.json", "config.json", "model.safetensors"):
            for kept in (0.0, 0.5):
                with self.subTest(file=name, kept=kept):
                    model = self.checkpoint()
                    data = (model / name).read_bytes()
                    (model / name).write_bytes(data[:int(len(data) * kept)])
                    self.assert_model_refused(model, name)
                    shutil.rmtree(model)

    def test_unsupported_architectures_are_named(self):
        model = self.checkpoint()
        self.edit_config(model, architectures=["MambaForCausalLM"], model_type="mamba")
        self.assert_model_refused(model, "amba")

    def test_weights_that_do_not_fit_the_config_are_named(self):
        model = self.checkpoint()
        self.edit_config(model, hidden_size=320)
        self.assert_model_refused(model, "shape")

    def test_a_model_that_is_not_there_is_told_before_an_engine_is_waited_for(self):
        for command in ("serve", "worker"):  # the engine would be waited for ten minutes
            more = ["--port", "0"] if command == "serve" else ["--discovery", f"file:{self.folder}"]
            self.assert_refused(command, "/nowhere/model", "--engine", "vllm", "--url", "http://127.0.0.1:1", *more,
                                names=["/nowhere/model"])

    def test_impossible_sizes_in_the_config_are_refused(self):
        for fields in ({"num_attention_heads": 0}, {"num_hidden_layers": -1}, {"hidden_size": 1 << 40}, {"vocab_size": "many"}):
            with self.subTest(fields=fields):
                model = self.checkpoint()
                self.edit_config(model, **fields)
                self.assert_model_refused(model, "config.json")
                shutil.rmtree(model)

    # Clients

    def test_clients_without_a_server_name_its_address(self):
        for command in ("explain", "chat"):
            done = self.run_stator(command, "--url", "http://127.0.0.1:1")
            self.assertNotEqual(done.returncode, 0)
            self.assertIn("http://127.0.0.1:1", done.stderr)
            self.assertEqual(len(done.stderr.strip().splitlines()), 1, done.stderr)

    # Variables and secrets

    def test_a_variable_that_is_no_setting_is_named_with_the_nearest(self):
        done = self.run_stator("config", env={"STATOR_HTTP_PROT": "1", "STATOR_HTTP_HOST": "127.0.0.1"})
        self.assertEqual(done.returncode, 0)
        lines = [line for line in done.stderr.splitlines() if "STATOR_HTTP_PROT" in line]
        self.assertEqual(len(lines), 1, done.stderr)
        self.assertIn("STATOR_HTTP_PORT", lines[0])
        self.assertNotIn("STATOR_HTTP_HOST", done.stderr)

    def test_secrets_are_not_printed(self):
        done = self.run_stator("config", env={"STATOR_DISCOVERY_ETCD_PASSWORD": "hunter2", "STATOR_ENGINE_API_KEY": "hunter2",
                                              "STATOR_SYSTEM_TOKEN": "hunter2", "HF_TOKEN": "hunter2",
                                              "STATOR_EVENTS_CARRIER": "nats://me:hunter2@host:4222"})
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertNotIn("hunter2", done.stdout + done.stderr)
        self.assertIn("nats://***@host:4222", done.stdout)
        refused = self.run_stator("frontend", "--discovery", "ftp://me:hunter2@host")
        self.assertEqual(refused.returncode, 2)
        self.assertNotIn("hunter2", refused.stderr)

    # What is right stays right

    def test_help_version_config_and_completions_succeed(self):
        for arguments in (["--help"], ["--version"], ["version"], ["config"], ["config", "--markdown"], ["completion", "bash"],
                          ["completion", "zsh"], ["completion", "fish"]):
            done = self.run_stator(*arguments)
            self.assertEqual((done.returncode, done.stderr), (0, ""), arguments)
            self.assertTrue(done.stdout)
        self.assert_refused("completion", "tcsh", names=["tcsh", "bash"])

    def test_printed_settings_can_be_read_back(self):
        config = self.folder / "stator.yaml"
        config.write_text(self.run_stator("config", "--port", "1234").stdout)
        again = self.run_stator("config", "--config", str(config))
        self.assertEqual((again.returncode, again.stdout), (0, config.read_text()), again.stderr)


if __name__ == "__main__":
    unittest.main()
