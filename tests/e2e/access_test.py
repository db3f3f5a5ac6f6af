# SPDX-License-Identifier: Apache-2.0
"""Who may do what: keys, tokens, tenants, the operators' listener; from outside, cell by cell."""

import base64
import http.client
import http.server
import json
import os
import pathlib
import ssl
import subprocess
import tempfile
import threading
import time
import unittest

from authority import Authority
from stator_process import BINARY, MODEL_DIR, Stator, clean_environment, eventually

CHAT = {"model": "demo", "messages": [{"role": "user", "content": "What is a KV cache, and who may see it?"}], "max_tokens": 4,
        "temperature": 0}


def stator(*arguments: str) -> subprocess.CompletedProcess:
    return subprocess.run([BINARY, *arguments], env=clean_environment(), capture_output=True, text=True, timeout=60)


def ask(port: int, method: str, path: str, body=None, **headers: str):
    """Status, headers, body."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    if body is not None:
        sent.setdefault("content-type", "application/json")
    connection.request(method, path, None if body is None else json.dumps(body), sent)
    answer = connection.getresponse()
    data = answer.read()
    connection.close()
    return answer.status, dict((k.lower(), v) for k, v in answer.getheaders()), data


def key(role: str, tenant: str) -> tuple[str, str]:
    made = stator("key", "new", "--role", role, "--tenant", tenant, "--json")
    pair = json.loads(made.stdout)
    return pair["key"], pair["line"]


class Access(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        folder = pathlib.Path(cls.folder.name)
        cls.keys_file = folder / "keys"
        cls.tenants_file = folder / "tenants"
        cls.keys = {}
        lines = []
        for role, tenant in (("user", "acme"), ("user", "other"), ("service", "gateway"), ("operator", "ops"), ("user", "small")):
            secret, line = key(role, tenant)
            cls.keys[f"{role}:{tenant}"] = secret
            lines.append(line)
        cls.keys_file.write_text("\n".join(lines) + "\n")
        cls.tenants_file.write_text("small requests_per_minute=3\n")
        cls.server = Stator("serve", str(MODEL_DIR), "--port", "0", "--host", "127.0.0.1", "--admin-port", "0", "--api-keys",
                            str(cls.keys_file), "--tenants", str(cls.tenants_file), "--access-reload-interval", "50ms")
        cls.port = cls.server.ready["port"]
        cls.admin = cls.server.ready["admin_port"]

    @classmethod
    def tearDownClass(cls):
        cls.server.kill()
        cls.folder.cleanup()

    def chat(self, who: str, body=None, **headers):
        return ask(self.port, "POST", "/v1/chat/completions", body or CHAT, authorization=f"Bearer {self.keys[who]}", **headers)

    def test_every_cell_of_the_table_of_routes(self):
        table = json.loads(stator("routes", "--json").stdout)
        self.assertEqual(table["roles"], ["anyone", "user", "service", "operator"])
        who = {"anyone": None, "user": self.keys["user:acme"], "service": self.keys["service:gateway"],
               "operator": self.keys["operator:ops"]}
        for route in table["routes"]:
            path = route["path"].replace("{id}", "nobody")
            if path == "/drain":
                continue  # has a test of its own: the process ends
            for listener, port in (("public", self.port), ("admin", self.admin)):
                for role, secret in who.items():
                    with self.subTest(method=route["method"], path=path, listener=listener, role=role):
                        headers = {"authorization": f"Bearer {secret}"} if secret else {}
                        body = {"level": 7} if path == "/engine/sleep" else {}  # who may is told apart from what: nobody shall sleep
                        status, _, body = ask(port, route["method"], path, body if route["method"] == "POST" else None, **headers)
                        if route["listener"] not in (listener, "both"):
                            self.assertIn(status, (401, 404) if secret is None else (404,))
                            self.assertNotIn(b"stator_", body)
                        elif route["allowed"][role]:
                            self.assertNotIn(status, (401, 403), body)
                        else:
                            self.assertEqual(status, 403 if secret else 401, body)

    def test_no_operators_route_is_on_the_public_port(self):
        for path in ("/metrics", "/receipts/last", "/busy_threshold", "/tenants", "/ui/"):
            status, _, _ = ask(self.port, "GET", path, authorization=f"Bearer {self.keys['operator:ops']}")
            self.assertEqual(status, 404, path)

    def test_credentials(self):
        secret = self.keys["user:acme"]
        self.assertEqual(ask(self.port, "POST", "/v1/chat/completions", CHAT, x_api_key=secret)[0], 200)
        status, headers, body = ask(self.port, "POST", "/v1/chat/completions", CHAT)
        self.assertEqual(status, 401)
        self.assertEqual(headers.get("www-authenticate"), "Bearer")
        self.assertIn("API key", json.loads(body)["error"]["message"])
        status, _, body = ask(self.port, "POST", "/v1/chat/completions", CHAT, authorization="Bearer sk-stator-wrong")
        self.assertEqual(status, 401)
        self.assertNotIn(b"sk-stator-wrong", body)
        self.assertEqual(ask(self.port, "GET", "/health")[0], 200)
        self.assertEqual(json.loads(ask(self.port, "GET", "/health")[2])["instances"], [])
        self.assertNotEqual(json.loads(ask(self.port, "GET", "/health", x_api_key=self.keys["operator:ops"])[2])["instances"], [])

    def test_a_large_body_of_a_stranger_is_not_read(self):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        connection.putrequest("POST", "/v1/chat/completions")
        connection.putheader("content-type", "application/json")
        connection.putheader("content-length", str(50 << 20))
        connection.endheaders()
        self.assertEqual(connection.getresponse().status, 401)
        connection.close()

    def test_anthropic_clients_are_refused_in_their_words(self):
        status, _, body = ask(self.port, "POST", "/v1/messages", {})
        error = json.loads(body)
        self.assertEqual(status, 401)
        self.assertEqual((error["type"], error["error"]["type"]), ("error", "authentication_error"))

    def test_a_users_pins_and_tenant_do_not_count(self):
        status, headers, _ = self.chat("user:acme", CHAT | {"nvext": {"backend_instance_id": 99}}, x_tenant_id="other",
                                       x_stator_worker_instance_id="99")
        self.assertEqual(status, 200)
        ignored = headers["x-stator-ignored-fields"].split(",")
        self.assertEqual(set(ignored), {"nvext.backend_instance_id", "x-tenant-id", "x-stator-worker-instance-id"})
        status, _, body = self.chat("service:gateway", x_stator_worker_instance_id="99")
        self.assertEqual(status, 404, body)  # it is believed
        self.assertIn(b"worker 99", body)

    def test_tenants_share_no_cache(self):
        def cached(who, topic, **headers):
            prompt = f"{topic}: a long beginning that fills several blocks of the cache, so that a second request finds it there. " * 3
            usage = json.loads(self.chat(who, CHAT | {"messages": [{"role": "user", "content": prompt}]}, **headers)[2])["usage"]
            return usage["prompt_tokens_details"]["cached_tokens"]

        template = 16  # tokens before the message, the same for all topics
        for topic in ("one", "two", "three"):
            self.assertLessEqual(cached("user:acme", topic), template)
            eventually(lambda: cached("user:acme", topic) > template, "the own prefix is found")
        self.assertEqual(cached("user:other", "one"), 0)
        self.assertLessEqual(cached("user:other", "two", x_tenant_id="acme"), template)
        self.assertLessEqual(cached("service:gateway", "three"), template)
        self.assertGreater(cached("service:gateway", "three", x_tenant_id="acme"), template)

    def test_a_tenants_budget(self):
        answers = [self.chat("user:small") for _ in range(5)]
        self.assertEqual([status for status, _, _ in answers], [200, 200, 200, 429, 429])
        wait = int(answers[3][1]["retry-after"])
        self.assertTrue(1 <= wait <= 20, wait)
        self.assertIn("requests_per_minute", json.loads(answers[3][2])["error"]["message"])
        self.assertEqual(self.chat("user:acme")[0], 200)
        tenants = json.loads(ask(self.admin, "GET", "/tenants", x_api_key=self.keys["operator:ops"])[2])["tenants"]
        small = next(t for t in tenants if t["tenant"] == "small")
        self.assertEqual((small["refused"], small["running"], small["requests_per_minute"]), (2, 0, 3))
        self.assertGreater(small["tokens"], 0)

    def test_keys_are_reloaded(self):
        secret, line = key("user", "late")
        self.assertEqual(ask(self.port, "GET", "/v1/models", x_api_key=secret)[0], 401)
        with self.keys_file.open("a") as file:
            file.write(line + "\n")
        eventually(lambda: ask(self.port, "GET", "/v1/models", x_api_key=secret)[0] == 200, "the new key counts")

    def test_no_secret_is_shown(self):
        operator = self.keys["operator:ops"]
        shown = self.server.log() + ask(self.admin, "GET", "/metrics", x_api_key=operator)[2].decode()
        shown += ask(self.admin, "GET", "/receipts/last", x_api_key=operator)[2].decode()
        for secret in self.keys.values():
            self.assertNotIn(secret, shown)

    def test_no_secret_is_left_where_others_read_it(self):
        """/proc/PID/environ is the environment at the end of a core file, too."""
        environment = clean_environment(STATOR_SYSTEM_TOKEN="env-secret-1", HF_TOKEN="env-secret-2")
        server = Stator("serve", str(MODEL_DIR), "--engine", "sim", "--port", "0", "--host", "127.0.0.1", "--admin-port", "0", "--system-port", "0",
                        "--access-cache-salt-key", "word-secret-4", "--trace-otlp-header=k=word-secret-3", env=environment)
        self.addCleanup(server.kill)
        seen = b"".join(pathlib.Path(f"/proc/{server.process.pid}/{name}").read_bytes() for name in ("environ", "cmdline"))
        seen += ask(server.ready["admin_port"], "GET", "/config")[2] + server.log().encode()
        self.assertIn(b"STATOR_SYSTEM_TOKEN=", seen)
        self.assertNotIn(b"-secret-", seen)
        status, _, _ = ask(server.ready["system_port"], "POST", "/engine/reset_prefix_cache", {}, authorization="Bearer env-secret-1")
        self.assertEqual(status, 200)  # and still it is known
        self.assertEqual(ask(server.ready["system_port"], "POST", "/engine/reset_prefix_cache", {})[0], 401)


class Loopback(unittest.TestCase):
    def start(self, *arguments: str) -> Stator:
        server = Stator("serve", str(MODEL_DIR), "--port", "0", *arguments)
        self.addCleanup(server.kill)
        return server

    def test_without_keys_the_admin_listener_asks_for_nothing(self):
        server = self.start("--host", "127.0.0.1", "--admin-port", "0")
        self.assertEqual(ask(server.ready["admin_port"], "GET", "/metrics")[0], 200)
        self.assertEqual(ask(server.ready["port"], "GET", "/metrics")[0], 404)
        self.assertEqual(ask(server.ready["port"], "POST", "/v1/chat/completions", CHAT)[0], 200)
        self.assertEqual(ask(server.ready["admin_port"], "GET", "/metrics", host="evil.example")[0], 403)
        status, _, _ = ask(server.ready["admin_port"], "POST", "/busy_threshold", {"model": "demo"}, origin="https://evil.example")
        self.assertEqual(status, 403)
        self.assertNotIn("ANYBODY", server.log())
        self.assertEqual(ask(server.ready["admin_port"], "POST", "/drain", {})[0], 202)
        self.assertEqual(server.process.wait(60), 0)

    def test_an_admin_listener_for_others_needs_keys(self):
        refused = stator("serve", str(MODEL_DIR), "--port", "0", "--admin-port", "0", "--admin-host", "0.0.0.0")
        self.assertEqual(refused.returncode, 2)
        self.assertIn("--api-keys", refused.stderr)

    def test_a_public_port_without_keys_is_told(self):
        server = self.start("--host", "0.0.0.0")
        self.assertEqual(server.log().count("ANYBODY"), 1)
        doctor = stator("doctor", "--port", "0", "--host", "0.0.0.0")
        self.assertEqual(doctor.returncode, 1)
        self.assertIn("stator key new", doctor.stdout)
        self.assertEqual(stator("doctor", "--port", "0", "--host", "127.0.0.1").returncode, 0)
        told = json.loads(stator("doctor", "--port", "0", "--host", "0.0.0.0", "--json").stdout)
        self.assertFalse(told["ready"])
        self.assertEqual([check["check"] for check in told["checks"] if check["verdict"] == "fix"], ["who may use it"])


class Issuer:
    """Signs tokens with an RSA key, and serves its key set."""

    def __init__(self, folder: pathlib.Path):
        self.folder, self.names = folder, []
        issuer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                body = issuer.key_set().encode()
                self.send_response(200)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/jwks"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()

    def rotate(self, name: str):
        subprocess.run(["openssl", "genrsa", "-out", self.folder / name, "2048"], check=True, capture_output=True)
        self.names = [name]

    @staticmethod
    def text(data: bytes) -> str:
        return base64.urlsafe_b64encode(data).rstrip(b"=").decode()

    def key_set(self) -> str:
        keys = []
        for name in self.names:
            out = subprocess.run(["openssl", "rsa", "-in", self.folder / name, "-noout", "-modulus"], check=True, capture_output=True, text=True)
            modulus = bytes.fromhex(out.stdout.strip().split("=")[1])
            keys.append({"kty": "RSA", "kid": name, "use": "sig", "alg": "RS256", "n": self.text(modulus), "e": "AQAB"})
        return json.dumps({"keys": keys})

    def sign(self, name: str, **claims) -> str:
        header = {"alg": "RS256", "kid": name, "typ": "JWT"}
        text = self.text(json.dumps(header).encode()) + "." + self.text(json.dumps(claims).encode())
        signed = subprocess.run(["openssl", "dgst", "-sha256", "-sign", self.folder / name], input=text.encode(), check=True, capture_output=True)
        return text + "." + self.text(signed.stdout)


class Tokens(unittest.TestCase):
    def test_tokens_of_an_issuer_that_rotates_its_keys(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        issuer = Issuer(pathlib.Path(folder.name))
        self.addCleanup(issuer.close)
        issuer.rotate("one")
        server = Stator("serve", str(MODEL_DIR), "--port", "0", "--host", "127.0.0.1", "--jwt-jwks", issuer.url, "--jwt-issuer", "https://id",
                        "--jwt-audience", "stator", "--access-reload-interval", "50ms")
        self.addCleanup(server.kill)

        def status(token: str, path: str = "/v1/models") -> int:
            return ask(server.ready["port"], "GET", path, authorization=f"Bearer {token}")[0]

        later = time.time() + 600
        good = {"sub": "bob", "iss": "https://id", "aud": "stator", "exp": later}
        self.assertEqual(status(issuer.sign("one", **good)), 200)
        self.assertEqual(status(issuer.sign("one", **good), "/metrics"), 403)
        self.assertEqual(status(issuer.sign("one", **good, role="operator"), "/metrics"), 200)
        for wrong in ({"exp": time.time() - 1}, {"nbf": later}, {"iss": "https://evil"}, {"aud": "other"}):
            self.assertEqual(status(issuer.sign("one", **(good | wrong))), 401, wrong)
        self.assertEqual(status("ey.ey.ey"), 401)
        old = issuer.sign("one", **good)
        issuer.rotate("two")
        new = issuer.sign("two", **good)
        eventually(lambda: status(new) == 200, "the new key is fetched")
        self.assertEqual(status(old), 401)


class MutualTls(unittest.TestCase):
    def test_clients_show_a_certificate(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        path = pathlib.Path(folder.name)
        ours, foreign = Authority(path, "ours"), Authority(path, "foreign")
        ours.options("server", "IP:127.0.0.1")
        ours.options("client", "DNS:client")
        foreign.options("stranger", "DNS:client")
        server = Stator("serve", str(MODEL_DIR), "--port", "0", "--host", "127.0.0.1", "--tls-cert-path", f"{path}/server.pem",
                        "--tls-key-path", f"{path}/server.key", "--tls-client-ca", f"{path}/ours.pem")
        self.addCleanup(server.kill)

        def status(certificate: str | None) -> int:
            context = ssl.create_default_context(cafile=f"{path}/ours.pem")
            if certificate:
                context.load_cert_chain(f"{path}/{certificate}.pem", f"{path}/{certificate}.key")
            connection = http.client.HTTPSConnection("127.0.0.1", server.ready["port"], context=context, timeout=30)
            try:
                connection.request("GET", "/v1/models")
                return connection.getresponse().status
            finally:
                connection.close()

        self.assertEqual(status("client"), 200)
        for stranger in (None, "stranger"):
            with self.assertRaises((ssl.SSLError, ConnectionError, http.client.RemoteDisconnected)):
                status(stranger)


class Keys(unittest.TestCase):
    def test_a_key_is_printed_once_and_its_line_appended(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "keys"
            made = stator("key", "new", "--tenant", "acme", "--file", str(path))
            secret, line = made.stdout.splitlines()
            self.assertRegex(secret, r"^sk-stator-[A-Za-z0-9_-]{43}$")
            self.assertRegex(line, r"^sha256:[0-9a-f]{64} user acme$")
            self.assertEqual(path.read_text(), line + "\n")
            self.assertEqual(os.stat(path).st_mode & 0o777, 0o600)

    def test_errors_name_what_to_change(self):
        self.assertIn("--role", stator("key", "new", "--role", "root").stderr)
        self.assertIn("--tenant", stator("key", "new", "--tenant", "a b").stderr)
        self.assertEqual(stator("key", "old").returncode, 2)


if __name__ == "__main__":
    unittest.main()
