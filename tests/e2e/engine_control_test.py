#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What operators do with engine servers through Stator: LoRA adapters, sleep, a reset of the prefix cache."""

import unittest

from stator_process import MODEL_DIR, Http, Split, Stator, clean_environment, eventually

EVENTS = ("--event-endpoint", "tcp://127.0.0.1:0", "--event-replay-endpoint", "tcp://127.0.0.1:0")
FAST = ("--engine-poll-interval", "50ms")
TALE = "Once upon a time there was a cache, and everybody forgot. " * 12


def server(case: unittest.TestCase, dialect: str, *arguments: str) -> Stator:
    process = Stator("sim-server", "--dialect", dialect, "--model-dir", str(MODEL_DIR), "--served-model-name", "m",
                     "--port", "0", "--speedup", "0", *EVENTS, *arguments)
    case.addCleanup(process.close)
    return process


class Served(unittest.TestCase):
    """Two fake servers behind one `stator serve` with its service for operators."""

    dialect = "vllm"
    arguments: tuple[str, ...] = ()
    settings: tuple[str, ...] = ()

    def setUp(self) -> None:
        self.servers = [server(self, self.dialect, *self.arguments) for _ in range(2)]
        self.stator = Stator(
            "serve", str(MODEL_DIR), "--engine", self.dialect, "--url", ",".join(s.url for s in self.servers),
            "--host", "127.0.0.1", "--port", "0", "--system-port", "0", *FAST, *self.settings)
        self.addCleanup(self.stator.close)
        self.http = Http(self.stator.port)
        self.system = Http(self.stator.ready["system_port"])
        eventually(lambda: len(self.http.get("/health")[1].get("instances", [])) == 2, "healthy")
        self.workers = sorted(w["worker_id"] for w in self.system.get("/health")[1]["workers"])

    def load(self, name: str, query: str = "", path: str = "/adapters/some"):
        return self.system.post(f"/v1/loras{query}", {"lora_name": name, "lora_path": path})

    def listed(self) -> dict[str, str | None]:
        return {row["id"]: row.get("parent") for row in self.http.get("/v1/models")[1]["data"]}

    def ask(self, model: str, prompt: object = TALE, status: int = 200, headers: dict | None = None) -> dict:
        got, answer = self.http.post(
            "/v1/completions", {"model": model, "prompt": prompt, "max_tokens": 6, "temperature": 0}, headers)
        self.assertEqual(got, status, answer)
        return answer

    def receipt(self, answer: dict) -> dict:
        return self.http.get(f"/receipts/{answer['id']}")[1]


class AdapterCases:
    """What holds for either kind of server."""

    load_route: str

    def test_an_adapter_is_a_model_at_the_workers_that_have_it(self):
        worker = self.workers[1]
        status, told = self.load("poet", f"?worker_id={worker}")
        self.assertEqual((status, told["workers"]), (200, [{"worker_id": worker, "status": "done"}]))
        eventually(lambda: "poet" in self.listed(), "it is listed")

        self.assertEqual(self.listed(), {"m": None, "poet": "m"})
        self.assertEqual(self.http.get("/v1/models/poet")[1]["parent"], "m")
        base = self.ask("m")
        answers = [self.ask(name, f"{i} {TALE}") for i, name in enumerate(("poet", "m:poet", "poet", "m:poet"))]
        self.assertEqual({self.receipt(a)["chosen"]["worker_id"] for a in answers}, {str(worker)})
        self.assertEqual({a["model"] for a in answers}, {"poet"})
        self.assertNotEqual(self.ask("poet")["choices"][0]["text"], base["choices"][0]["text"], "the adapter answered")
        self.assertEqual(self.system.get("/v1/loras")[1],
                         {"loras": [{"lora_name": "poet", "workers": [worker]}], "count": 1})

    def test_its_blocks_are_its_own(self):
        self.load("poet")
        eventually(lambda: "poet" in self.listed(), "it is listed")
        first = self.receipt(self.ask("poet"))
        eventually(lambda: self.http.metric("stator_router_index_blocks") > 0, "the engine's events are known")
        again, base = self.receipt(self.ask("poet")), self.receipt(self.ask("m"))

        self.assertEqual(again["chosen"], first["chosen"])
        self.assertGreater(again["best_overlap_blocks"], 3, again)
        self.assertEqual(base["best_overlap_blocks"], 0, "the model itself has computed none of it")

    def test_an_adapter_that_goes_is_no_model_any_more(self):
        self.load("poet")
        eventually(lambda: "poet" in self.listed(), "it is listed")
        status, told = self.system.request("DELETE", "/v1/loras/poet")[::2]
        self.assertEqual(status, 200, told)
        eventually(lambda: "poet" not in self.listed(), "it is gone")
        self.assertIn("poet", self.ask("poet", status=404)["error"]["message"])

    def test_an_adapter_that_is_loaded_at_the_server_itself_is_found(self):
        Http(self.servers[0].port).request("POST", self.load_route, {"lora_name": "clerk", "lora_path": "/a"})
        eventually(lambda: "clerk" in self.listed(), "it is listed")
        self.ask("clerk")


class Adapters(AdapterCases, Served):
    load_route = "/v1/load_lora_adapter"

    def test_an_adapter_goes_with_its_server(self):
        self.load("poet", f"?worker_id={self.workers[0]}")
        eventually(lambda: "poet" in self.listed(), "it is listed")
        holder = next(s for s in self.servers if "poet" in str(Http(s.port).get("/v1/models")[1]))
        Http(holder.port).request("POST", "/fault", {"kind": "restart", "path": "/v1/completions", "delay_ms": 200})
        self.http.post("/v1/completions", {"model": "poet", "prompt": "a", "max_tokens": 4})
        eventually(lambda: "poet" not in self.listed(), "the new process has none")
        self.ask("m")

    def test_pages_of_others_change_nothing_and_see_nothing(self):
        port = self.system.port
        json_type, evil = {"Content-Type": "application/json"}, "evil.example:" + str(port)
        for method, path, headers, status in (
                ("POST", "/engine/reset_prefix_cache", json_type | {"Origin": "https://evil.example"}, 403),
                ("POST", "/engine/reset_prefix_cache", json_type | {"Origin": "null"}, 403),
                ("POST", "/v1/loras", json_type | {"Origin": f"http://{evil}", "Host": evil}, 403),
                ("DELETE", "/v1/loras/poet", {"Origin": "https://evil.example"}, 403),
                ("GET", "/metrics", {"Host": evil}, 403),
                ("GET", "/health", {"Host": "127.0.0.1.evil.example"}, 403),
                ("POST", "/engine/sleep", {"Content-Type": "text/plain"}, 415),
                ("GET", "/health", {"Host": f"localhost:{port}"}, 200)):
            with self.subTest(method=method, path=path, headers=headers):
                body = "{}" if method == "POST" else None
                self.assertEqual(self.system.request(method, path, body, headers)[0], status)

    def test_what_a_person_can_get_wrong(self):
        self.assertEqual(self.load("poet")[0], 200)
        for asked, status, named in (
                (lambda: self.load("poet"), 409, "already"),
                (lambda: self.load("other", path="/nonexistent/x"), 404, "/nonexistent/x"),
                (lambda: self.load(""), 400, "lora_name"),
                (lambda: self.load("other", path=""), 400, "lora_path"),
                (lambda: self.load("other", path="s3://bucket/x"), 400, "lora_path"),
                (lambda: self.load("other", "?worker_id=1"), 404, "worker 1"),
                (lambda: self.system.post("/v1/loras", [1]), 400, "JSON object"),
                (lambda: self.system.post("/engine/sleep", {"level": 7}), 400, "level"),
                (lambda: self.system.post("/engine/dance", {}), 404, "/engine/dance")):
            got, answer = asked()
            self.assertEqual(got, status, answer)
            self.assertIn(named, str(answer))


class SglangAdapters(AdapterCases, Served):
    dialect = "sglang"
    arguments = ("--lora", "yes")
    load_route = "/load_lora_adapter"

    def test_caches_are_guessed_because_its_events_do_not_tell_adapters_apart(self):
        eventually(lambda: self.http.metric("stator_router_index_workers", trust="approximate") == 2, "guessed")

    def test_what_a_person_can_get_wrong(self):
        self.assertEqual(self.load("poet")[0], 200)
        self.assertEqual(self.load("poet")[0], 409)
        status, told = self.load("other", path="/nonexistent/x")
        self.assertEqual(status, 400, told)
        self.assertIn("/nonexistent/x", str(told))

    def test_its_memory_is_given_up_and_taken_again(self):
        self.assertEqual(self.system.post("/engine/sleep", {})[0], 200)
        self.assertEqual(self.system.request("GET", "/health")[0], 503)
        eventually(lambda: self.http.post("/v1/completions", {"model": "m", "prompt": "a", "max_tokens": 1})[0] == 503,
                   "nobody is awake")
        self.assertEqual(self.system.post("/engine/wake_up", {})[0], 200)
        eventually(lambda: self.http.post("/v1/completions", {"model": "m", "prompt": "a", "max_tokens": 1})[0] == 200,
                   "both serve again")


class SglangWithout(Served):
    dialect = "sglang"

    def test_adapters_are_refused_with_what_the_server_needs(self):
        status, told = self.load("poet")
        self.assertEqual(status, 501, told)
        self.assertIn("--enable-lora", str(told))
        eventually(lambda: self.http.metric("stator_router_index_workers", trust="exact") == 2, "exact")


class Sleep(Served):
    def chosen(self, number: int) -> str:
        return self.receipt(self.ask("m", f"{number} {TALE}"))["chosen"]["worker_id"]

    def asleep(self) -> list[int]:
        _, _, body = self.system.request("GET", "/health")
        return body.count(b'"asleep"')

    def test_a_sleeping_engine_gets_nothing_until_it_is_woken_up(self):
        sleeper, other = self.workers
        status, told = self.system.post(f"/engine/sleep?worker_id={sleeper}", {"level": 1})
        self.assertEqual(status, 200, told)
        self.assertEqual(self.system.request("GET", "/health")[0], 503)
        self.assertEqual({self.chosen(i) for i in range(8)}, {str(other)})
        self.assertEqual(self.http.metric("stator_adapter_engine_asleep"), 1)

        self.assertEqual(self.system.post(f"/engine/wake_up?worker_id={sleeper}", {})[0], 200)
        eventually(lambda: self.system.request("GET", "/health")[0] == 200, "it is awake")
        numbers = iter(range(100, 10_000))
        eventually(lambda: self.chosen(next(numbers)) == str(sleeper), "it gets requests again")

    def test_an_engine_that_somebody_else_puts_to_sleep_is_left_alone(self):
        Http(self.servers[0].port).request("POST", "/sleep?level=1")
        eventually(lambda: self.asleep() == 1, "it is noticed")
        self.assertEqual(len({self.chosen(i) for i in range(8)}), 1)
        Http(self.servers[0].port).request("POST", "/wake_up")
        eventually(lambda: self.asleep() == 0, "that, too")

    def test_a_reset_empties_the_index_at_once(self):
        for i in range(4):
            self.chosen(i)
        eventually(lambda: self.http.metric("stator_router_index_blocks") > 0, "the engine's events are known")
        status, told = self.system.post("/engine/reset_prefix_cache", {})
        self.assertEqual((status, [w["status"] for w in told["workers"]]), (200, ["done", "done"]))
        eventually(lambda: self.http.metric("stator_router_index_blocks") == 0, "the index knows")
        self.assertEqual(self.http.metric("stator_adapter_controls_total", outcome="done"), 2)


class Unable(Served):
    arguments = ("--lora", "no", "--no-dev-mode")

    def test_what_the_server_was_not_started_for_is_refused_with_what_it_needs(self):
        for asked, needed in (
                (lambda: self.load("poet"), "--enable-lora"),
                (lambda: self.system.post("/engine/sleep", {}), "--enable-sleep-mode"),
                (lambda: self.system.post("/engine/wake_up", {}), "VLLM_SERVER_DEV_MODE"),
                (lambda: self.system.post("/engine/reset_prefix_cache", {}), "VLLM_SERVER_DEV_MODE")):
            status, answer = asked()
            self.assertEqual(status, 501, answer)
            self.assertIn(needed, str(answer))
        self.assertEqual(self.system.request("GET", "/health")[0], 200, "nobody sleeps")
        self.ask("m")


class ThroughAdmin(unittest.TestCase):
    """The same wishes on the admin listener of a frontend, which carries them to workers of its own process and of others."""

    def adapters(self, admin: Http) -> dict[str, list[int]]:
        return {row["lora_name"]: row["workers"] for row in admin.get("/v1/loras")[1]["loras"]}

    def check(self, http: Http, admin: Http, workers: list[int]) -> None:
        first, last = workers
        status, told = admin.post(f"/v1/loras?worker_id={last}&model=m", {"lora_name": "poet", "lora_path": "/adapters/some"})
        self.assertEqual((status, told), (200, {"workers": [{"worker_id": last, "status": "done"}]}))
        eventually(lambda: len(http.get("/v1/models")[1]["data"]) == 2, "the adapter is listed")
        self.assertEqual(self.adapters(admin), {"poet": [last]})
        status, told = admin.post("/v1/loras", {"lora_name": "poet", "lora_path": "/adapters/some"})
        self.assertEqual((status, [one["status"] for one in told["workers"]]), (409, ["done", "failed"]))
        self.assertEqual(self.adapters(admin), {"poet": [first, last]})
        self.assertEqual(admin.request("DELETE", "/v1/loras/poet")[0], 200)
        eventually(lambda: len(http.get("/v1/models")[1]["data"]) == 1, "it is gone")

        ask = {"model": "m", "prompt": "a", "max_tokens": 1}
        self.assertEqual(admin.post("/engine/sleep", {"level": 1})[0], 200)
        eventually(lambda: http.post("/v1/completions", ask)[0] == 503, "nobody is awake")
        self.assertEqual(admin.post("/engine/wake_up", {})[0], 200)
        eventually(lambda: http.post("/v1/completions", ask)[0] == 200, "both are")
        http.post("/v1/completions", ask | {"prompt": TALE})
        eventually(lambda: admin.metric("stator_router_index_blocks") > 0, "the engine's events are known")
        self.assertEqual(admin.post("/engine/reset_prefix_cache?model=m", {})[0], 200)
        eventually(lambda: admin.metric("stator_router_index_blocks") == 0, "the index knows")

        for path, body, status, named in (
                ("/v1/loras", {"lora_name": ""}, 400, "lora_name"), ("/v1/loras?worker_id=1", {"lora_name": "x", "lora_path": "/a"}, 404, "1"),
                ("/engine/sleep", {"level": 7}, 400, "level"), ("/engine/wake_up?model=other", {}, 404, "other")):
            got, answer = admin.post(path, body)
            self.assertEqual(got, status, answer)
            self.assertIn(named, answer["error"]["message"])
        self.assertEqual(http.post("/engine/sleep", {"level": 1})[0], 404, "the public port knows none of it")
        self.assertEqual(admin.request("POST", "/engine/sleep", "{}", {"Content-Type": "text/plain"})[0], 415)

    def test_workers_of_the_same_process(self):
        servers = [server(self, "vllm") for _ in range(2)]
        stator = Stator("serve", str(MODEL_DIR), "--engine", "vllm", "--url", ",".join(s.url for s in servers), "--host", "127.0.0.1",
                        "--port", "0", "--admin-port", "0", *FAST)
        self.addCleanup(stator.close)
        http = Http(stator.port)
        eventually(lambda: len(http.get("/health")[1].get("instances", [])) == 2, "healthy")
        self.check(http, Http(stator.ready["admin_port"]), sorted(one["instance_id"] for one in http.get("/health")[1]["instances"]))

    def test_workers_of_other_processes(self):
        servers = [server(self, "vllm") for _ in range(2)]

        class Fleet(Split):
            def start_worker(self) -> Stator:
                return Stator("worker", "--engine", "vllm", "--url", servers[len(self.workers)].url, "--model-name", "m", str(MODEL_DIR),
                              *FAST, *self.discovery)

        fleet = Fleet("--admin-port", "0")
        self.addCleanup(fleet.close)
        self.check(fleet.http, Http(fleet.frontend.ready["admin_port"]), sorted(fleet.worker_ids()))

    def test_a_profile_of_the_process(self):
        stator = Stator("serve", str(MODEL_DIR), "--engine", "sim", "--host", "127.0.0.1", "--port", "0", "--admin-port", "0")
        self.addCleanup(stator.close)
        admin = Http(stator.ready["admin_port"])
        status, profile = admin.get("/profile?seconds=0.2")
        self.assertEqual(status, 200, profile)
        self.assertGreaterEqual(profile["seconds"], 0.2)
        self.assertGreater(len(profile["threads"]), 2)
        used = [one["user_ms"] + one["system_ms"] for one in profile["threads"]]
        self.assertEqual(used, sorted(used, reverse=True))
        for wrong in ("0", "31", "x", "1e9", "nan"):
            self.assertEqual(admin.get(f"/profile?seconds={wrong}")[0], 400, wrong)


class Process(unittest.TestCase):
    def test_a_worker_process_tells_every_frontend(self):
        engine = server(self, "vllm")

        class Fleet(Split):
            def start_worker(self) -> Stator:
                return Stator("worker", "--engine", "vllm", "--url", engine.url, "--model-name", "m", str(MODEL_DIR),
                              "--system-port", "0", *FAST, *self.discovery)

        fleet = Fleet(workers=1)
        self.addCleanup(fleet.close)
        system = Http(fleet.workers[0].ready["system_port"])
        self.assertEqual(system.post("/v1/loras", {"lora_name": "poet", "source": {"uri": "file:///a"}})[0], 200)
        eventually(lambda: len(fleet.http.get("/v1/models")[1]["data"]) == 2, "the frontend lists it")
        self.assertEqual(fleet.http.post("/v1/completions", {"model": "poet", "prompt": "a", "max_tokens": 2})[0], 200)
        self.assertGreater(system.metric("stator_engine_generated_tokens_total"), 0)

        self.assertEqual(system.post("/engine/sleep", {})[0], 200)
        eventually(lambda: fleet.http.post("/v1/completions", {"model": "m", "prompt": "a", "max_tokens": 1})[0] == 503,
                   "the frontend knows that nobody is awake")

    def test_operators_are_asked_for_the_token(self):
        stator = Stator("serve", str(MODEL_DIR), "--engine", "sim", "--host", "127.0.0.1", "--port", "0",
                        "--system-port", "0", "--system-host", "0.0.0.0",
                        env=clean_environment(STATOR_SYSTEM_TOKEN="open sesame"))
        self.addCleanup(stator.close)
        system = Http(stator.ready["system_port"])
        self.assertEqual(system.request("GET", "/health")[0], 200)
        self.assertEqual(system.request("GET", "/live")[0], 200)
        for headers, status in (({}, 401), ({"Authorization": "Bearer open"}, 401),
                                ({"Authorization": "Bearer open sesame"}, 200)):
            self.assertEqual(system.post("/engine/reset_prefix_cache", {}, headers)[0], status)
        status, told = system.post("/engine/sleep", {}, {"Authorization": "Bearer open sesame"})
        self.assertEqual((status, {worker["status"] for worker in told["workers"]}), (200, {"done"}))

    def test_without_a_token_others_may_only_look(self):
        process = Stator("serve", str(MODEL_DIR), "--engine", "sim", "--host", "127.0.0.1", "--port", "0", "--system-port", "0",
                         "--system-host", "0.0.0.0")
        self.addCleanup(process.close)
        system = Http(process.ready["system_port"])
        self.assertEqual(system.request("GET", "/metrics")[0], 200)
        status, told = system.post("/engine/reset_prefix_cache", {})
        self.assertEqual(status, 403)
        self.assertIn("system.token", told["error"])
        self.assertIn("system.token", process.log())


if __name__ == "__main__":
    unittest.main()
