# SPDX-License-Identifier: Apache-2.0
"""A small Kubernetes API server in this process: objects of any kind, watches, patches, status, generations."""

from __future__ import annotations

import copy
import http.server
import json
import pathlib
import threading
import urllib.parse
import uuid


def merge(target, patch):
    """RFC 7386."""
    if not isinstance(patch, dict):
        return copy.deepcopy(patch)
    target = target if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            target.pop(key, None)
        else:
            target[key] = merge(target.get(key), value)
    return target


class KubeApi:
    def __init__(self, unserved=("leaderworkersets", "podcliquesets", "podcliques", "podcliquescalinggroups")):
        self.unserved = unserved
        self.changed = threading.Condition()
        self.objects: dict[tuple[str, str, str], dict] = {}
        self.events: list[tuple[int, str, str, dict]] = []  # version, plural, type, object
        self.version = 1
        self.written: list[str] = []  # method and path of each write
        self.stopping = False
        api = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *arguments):
                pass

            def do_GET(self):
                api.serve(self, "GET")

            def do_POST(self):
                api.serve(self, "POST")

            def do_PUT(self):
                api.serve(self, "PUT")

            def do_PATCH(self):
                api.serve(self, "PATCH")

            def do_DELETE(self):
                api.serve(self, "DELETE")

        class Server(http.server.ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, request, client_address):
                """Clients that are killed break their connections."""

        self.server = Server(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self.thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_address[1]}"

    def write_kubeconfig(self, path: pathlib.Path) -> None:
        path.write_text(json.dumps({
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{"name": "k", "cluster": {"server": self.url}}],
            "users": [{"name": "u", "user": {"token": "secret-token"}}],
            "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u", "namespace": "llm"}}]}))

    def close(self) -> None:
        with self.changed:
            self.stopping = True
            self.changed.notify_all()
        self.server.shutdown()
        self.server.server_close()

    # -------------------------------------------------------------------- as the tests see it

    def get(self, plural: str, name: str, space: str = "llm"):
        with self.changed:
            return copy.deepcopy(self.objects.get((plural, space, name)))

    def names(self, plural: str) -> list[str]:
        with self.changed:
            return sorted(name for kind, _, name in self.objects if kind == plural)

    def put(self, plural: str, value: dict, space: str = "llm") -> None:
        value = copy.deepcopy(value)
        value["metadata"]["namespace"] = space
        self.store(plural, space, value["metadata"]["name"], value)

    def patch(self, plural: str, name: str, patch: dict, status: bool = False, space: str = "llm") -> None:
        value = merge(self.get(plural, name, space), patch)
        self.store(plural, space, name, value, is_status=status)

    def delete(self, plural: str, name: str, space: str = "llm") -> None:
        with self.changed:
            value = self.objects[plural, space, name]
            if value["metadata"].get("finalizers"):
                value = copy.deepcopy(value)
                value["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
                self.objects[plural, space, name] = value
                self.record(plural, "MODIFIED", value)
                return
            del self.objects[plural, space, name]
            self.record(plural, "DELETED", value)
            owned = [key for key, each in self.objects.items()
                     for owner in each["metadata"].get("ownerReferences", [])
                     if owner["uid"] == value["metadata"]["uid"]]
        for kind, own_space, own_name in owned:
            if self.get(kind, own_name, own_space):
                self.delete(kind, own_name, own_space)

    def collect_garbage(self) -> None:
        """As the cluster's own controller: what was made for an owner that is gone meanwhile goes, too."""
        with self.changed:
            present = {value["metadata"]["uid"] for value in self.objects.values()}
            orphans = [key for key, value in self.objects.items()
                       if (owners := value["metadata"].get("ownerReferences"))
                       and not any(owner["uid"] in present for owner in owners)]
        for plural, space, name in orphans:
            if self.get(plural, name, space):
                self.delete(plural, name, space)

    # ------------------------------------------------------------------------------- as it works

    def record(self, plural: str, kind: str, value: dict) -> None:
        self.version += 1
        value["metadata"]["resourceVersion"] = str(self.version)
        self.events.append((self.version, plural, kind, copy.deepcopy(value)))
        self.changed.notify_all()

    def store(self, plural: str, space: str, name: str, value: dict, is_status: bool = False) -> dict:
        with self.changed:
            old = self.objects.get((plural, space, name))
            if old is None:
                value["metadata"].update(uid=str(uuid.uuid4()), generation=1)
            else:
                for key in ("uid", "generation"):
                    value["metadata"][key] = old["metadata"][key]
                if is_status:
                    value["spec"] = old.get("spec")
                elif "status" in old:
                    value["status"] = old["status"]
                if value.get("spec") != old.get("spec"):
                    value["metadata"]["generation"] += 1
                if {**value, "metadata": {**value["metadata"], "resourceVersion": ""}} == \
                        {**old, "metadata": {**old["metadata"], "resourceVersion": ""}}:
                    return old
            if value["metadata"].get("deletionTimestamp") and not value["metadata"].get("finalizers"):
                self.objects[plural, space, name] = value
            else:
                self.objects[plural, space, name] = value
                self.record(plural, "MODIFIED" if old else "ADDED", value)
                return value
        self.delete(plural, name, space)
        return value

    def serve(self, handler, method: str) -> None:
        url = urllib.parse.urlparse(handler.path)
        query = dict(urllib.parse.parse_qsl(url.query))
        length = int(handler.headers.get("content-length") or 0)
        body = json.loads(handler.rfile.read(length)) if length else None
        if url.path == "/apis":
            return self.answer(handler, 200, {"kind": "APIGroupList", "groups": [{"name": name} for name in (
                "apps", "nvidia.com", "inference.networking.k8s.io")]})
        parts = url.path.strip("/").split("/")
        parts = parts[2:] if parts[0] == "api" else parts[3:]
        space = ""
        if parts[0] == "namespaces" and len(parts) > 2:
            space, parts = parts[1], parts[2:]
        plural, name, sub = (parts + ["", ""])[:3]
        if handler.headers.get("authorization") != "Bearer secret-token":
            return self.answer(handler, 401, {"message": "who are you?"})
        if plural in self.unserved:
            return self.answer(handler, 404, {"message": f"no {plural} here"})
        if method == "GET" and query.get("watch"):
            return self.watch(handler, plural, space, query)
        if method != "GET":
            self.written.append(f"{method} {url.path}")
        return self.answer(handler, *self.act(method, plural, space, name, sub, body, handler.headers, query))

    def wanted(self, value: dict, query: dict, space: str) -> bool:
        labels = value["metadata"].get("labels", {})
        wanted = [each.partition("=") for each in query.get("labelSelector", "").split(",") if each]
        return (not space or value["metadata"].get("namespace") == space) and \
            all(key in labels and (not sign or labels[key] == text) for key, sign, text in wanted)

    def act(self, method, plural, space, name, sub, body, headers, query):
        old = self.get(plural, name, space) if name else None
        if method == "GET" and not name:
            with self.changed:
                items = [v for (kind, _, _), v in self.objects.items() if kind == plural and self.wanted(v, query, space)]
                return 200, {"kind": "List", "metadata": {"resourceVersion": str(self.version)}, "items": items}
        if method == "POST":
            if self.get(plural, body["metadata"]["name"], space):
                return 409, {"message": "it is there"}
            return 201, self.store(plural, space, body["metadata"]["name"], body)
        if old is None and not (method == "PATCH" and "apply-patch" in headers["content-type"]):
            return 404, {"message": f"{plural} {name} not found"}
        if method == "GET":
            return 200, old
        if method == "DELETE":
            self.delete(plural, name, space)
            return 200, {"kind": "Status"}
        if method == "PUT":
            if body["metadata"].get("resourceVersion") != old["metadata"]["resourceVersion"]:
                return 409, {"message": "not the newest"}
            return 200, self.store(plural, space, name, body, sub == "status")
        if "json-patch" in headers["content-type"]:
            for step in body:
                at = old
                keys = step["path"].strip("/").split("/")
                for key in keys[:-1]:
                    at = at[int(key)] if isinstance(at, list) else at[key]
                if step["op"] == "test":
                    if at[keys[-1]] != step["value"]:
                        return 422, {"message": "test failed"}
                else:
                    at[keys[-1]] = step["value"]
            return 200, self.store(plural, space, name, old)
        if "apply-patch" in headers["content-type"] and sub == "status" and old:  # conditions are a map by their type
            own = {each["type"] for each in body["status"].get("conditions", [])}
            body["status"]["conditions"] = body["status"].get("conditions", []) + [
                each for each in old.get("status", {}).get("conditions", []) if each["type"] not in own]
        return 200, self.store(plural, space, name, merge(old, body), sub == "status")

    def answer(self, handler, status: int, value: dict) -> None:
        data = json.dumps(value).encode()
        handler.send_response(status)
        handler.send_header("content-type", "application/json")
        handler.send_header("content-length", str(len(data)))
        handler.end_headers()
        handler.wfile.write(data)

    def watch(self, handler, plural: str, space: str, query: dict) -> None:
        handler.send_response(200)
        handler.send_header("content-type", "application/json")
        handler.send_header("connection", "close")
        handler.close_connection = True
        handler.end_headers()
        seen = int(query["resourceVersion"])
        try:
            while not self.stopping:
                with self.changed:
                    found = [event for event in self.events if event[0] > seen]
                    if not found:
                        self.changed.wait(0.5)
                        continue
                    seen = found[-1][0]
                for _, kind, what, value in found:
                    if kind == plural and self.wanted(value, query, space):
                        handler.wfile.write(json.dumps({"type": what, "object": value}).encode() + b"\n")
                handler.wfile.flush()
        except OSError:
            pass
