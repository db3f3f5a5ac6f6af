#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How the operator bears many graphs, and its own death: figures for docs/benchmarks/kubernetes.md.

  tests/kubernetes/scale.py graphs [--nodes 100] [--graphs 1000]     time, CPU, memory until all are ready, or --limit seconds are over; then
                                                                   how soon a change arrives, and what rest costs
  tests/kubernetes/scale.py floor [--nodes 100] [--graphs 1000]      what the control plane itself needs for the same Deployments, Services and
                                                                   accounts when nobody but a script makes them
  tests/kubernetes/scale.py faults [--kills 50] [--graphs 20]        killed at random points, connections broken, API server restarted: the same
                                                                   end, with few more writes
  tests/kubernetes/scale.py gangs [--racks 20] [--gangs 50]          gangs of 16, no part of one ever alone"""

import argparse
import collections
import contextlib
import json
import os
import random
import socket
import sys
import threading
import time
import urllib.request

import yaml

from control_plane import ApiError, ControlPlane, eventually, free_ports, missing
from rig import graph, install, operator_command, start_operator

SPACE = "load"


def usage_of(pid: int) -> tuple[float, float]:
    """CPU seconds and resident MiB."""
    fields = open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()
    resident = next(line for line in open(f"/proc/{pid}/status") if line.startswith("VmRSS"))
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"), int(resident.split()[1]) / 1024


def count_told(port: int) -> int:
    """As the operator's metrics say: to list a thousand graphs each second would cost the API server a part of a core."""
    with contextlib.suppress(OSError):
        text = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60).read().decode()
        return int(sum(float(line.rsplit(" ", 1)[1]) for line in text.splitlines() if line.startswith("dynamo_operator_resources_total{")
                       and 'resource_type="DynamoGraphDeployment"' in line and 'status="successful"' in line))
    return 0


def count_ready(plane) -> int:
    return sum((each.get("status") or {}).get("state") == "successful" for each in plane.api.list("DynamoGraphDeployment", SPACE))


def create_all(plane, count: int) -> None:
    def create(part):
        for number in part:
            made = graph(f"g{number}")
            made["spec"]["components"][1]["podTemplate"]["spec"]["terminationGracePeriodSeconds"] = 1
            plane.api.create(made, SPACE)
    threads = [threading.Thread(target=create, args=(range(first, count, 4),)) for first in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()


def objects(plane) -> dict:
    """What there is, without what only the server writes."""
    found = {}
    for kind in ("DynamoGraphDeployment", "DynamoComponentDeployment", "Deployment", "Service", "ServiceAccount", "Role", "RoleBinding",
                 "DynamoGraphDeploymentScalingAdapter"):
        for each in plane.api.list(kind, SPACE):
            if each["metadata"]["name"] not in ("default", "kubernetes"):
                found[f"{kind}/{each['metadata']['name']}"] = json.dumps(each.get("spec", each.get("rules", "")), sort_keys=True)
    return {key: value for key, value in found.items() if not key.startswith("Service/")} | {
        key: "" for key in found if key.startswith("Service/")}


def time_updates(plane, count: int) -> list[float]:
    """Seconds from a change of a frontend's replicas to that of its Deployment, one graph after the other."""
    took = []
    ready = [each for each in plane.api.list("DynamoGraphDeployment", SPACE) if (each.get("status") or {}).get("state") == "successful"]
    for value in ready[:count]:
        value["spec"]["components"][0]["replicas"] = 2
        name = value["metadata"]["name"]
        try:
            plane.api.request("PUT", plane.api.path("DynamoGraphDeployment", SPACE, name), value)
        except ApiError:
            continue  # its status moved meanwhile
        begin = time.monotonic()
        eventually(lambda name=name: plane.api.get("Deployment", f"{name}-frontend", SPACE)["spec"]["replicas"] == 2, "the change arrives", 120, 0.005)
        took.append(time.monotonic() - begin)
    return took


def percentile(values: list[float], share: float) -> float | None:
    return round(sorted(values)[min(len(values) - 1, int(len(values) * share))], 3) if values else None


def run_graphs(arguments) -> int:
    plane = ControlPlane(arguments.nodes)
    try:
        install(plane)
        plane.make_namespace(SPACE)
        health, = free_ports(1)
        operator = start_operator(plane, "--health-port", str(health))
        eventually(lambda: plane.api.get("ValidatingWebhookConfiguration", "stator-operator"), "the webhooks are known")
        pid = operator.process.pid
        parts = {name: process.pid for name, process in plane.processes.items()}
        before = {name: usage_of(part)[0] for name, part in parts.items()}
        begin, (cpu, _) = time.monotonic(), usage_of(pid)
        create_all(plane, arguments.graphs)
        created = time.monotonic() - begin
        end = begin + arguments.limit
        while count_told(health) < arguments.graphs and time.monotonic() < end:
            time.sleep(0.5)
        took, (cpu_end, memory) = time.monotonic() - begin, usage_of(pid)
        costs = {name: round(usage_of(part)[0] - before[name], 1) for name, part in parts.items()}
        ready = count_ready(plane)
        updates = time_updates(plane, min(arguments.updates, ready))
        time.sleep(5)
        rest_begin = usage_of(pid)[0]
        time.sleep(20)
        rest = (usage_of(pid)[0] - rest_begin) / 20
        print(json.dumps({"nodes": arguments.nodes, "graphs": arguments.graphs, "ready": ready, "created_s": round(created, 1),
                          "ready_s": round(took, 1), "update_p50_s": percentile(updates, 0.5), "update_p99_s": percentile(updates, 0.99),
                          "operator_cpu_s": round(cpu_end - cpu, 1), "operator_rss_mib": round(memory), "rest_core_share": round(rest, 4),
                          "control_plane_cpu_s": costs}))
        operator.close()
        return 0
    finally:
        plane.close()


def run_floor(arguments) -> int:
    """The children that `stator operator render` says, written as they are; no operator, no graphs."""
    plane = ControlPlane(arguments.nodes)
    try:
        install(plane)
        plane.make_namespace(SPACE)
        kinds = ("Deployment", "Service", "ServiceAccount", "Role", "RoleBinding")

        def create(part):
            for number in part:
                made = operator_command("render", "-", "--namespace", SPACE, "--json", data=yaml.safe_dump(graph(f"g{number}"))).stdout
                for child in json.loads(made)["items"]:
                    if child["kind"] in kinds:
                        plane.api.create(child, SPACE)
        before = {name: usage_of(process.pid)[0] for name, process in plane.processes.items()}
        begin = time.monotonic()
        threads = [threading.Thread(target=create, args=(range(first, arguments.graphs, 4),)) for first in range(4)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        created, end, ready = time.monotonic() - begin, begin + arguments.limit, 0
        while ready < 2 * arguments.graphs and time.monotonic() < end:
            time.sleep(2)
            ready = sum((each.get("status") or {}).get("availableReplicas", 0) >= each["spec"]["replicas"]
                        for each in plane.api.list("Deployment", SPACE))
        print(json.dumps({"nodes": arguments.nodes, "graphs": arguments.graphs, "created_s": round(created, 1), "ready_deployments": ready,
                          "ready_s": round(time.monotonic() - begin, 1), "control_plane_cpu_s": {
                              name: round(usage_of(process.pid)[0] - before[name], 1) for name, process in plane.processes.items()}}))
        return 0
    finally:
        plane.close()


class BreakingProxy:
    """Passes connections on to the API server, and breaks all of them again and again."""

    def __init__(self, port: int):
        self.target, self.running, self.broken = port, True, 0
        self.lock = threading.Lock()
        self.open: set[socket.socket] = set()
        self.server = socket.create_server(("127.0.0.1", 0))
        self.port = self.server.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self) -> None:
        while self.running:
            try:
                near, _ = self.server.accept()
                far = socket.create_connection(("127.0.0.1", self.target))
            except OSError:
                continue
            with self.lock:
                self.open |= {near, far}
            for source, sink in ((near, far), (far, near)):
                threading.Thread(target=self.carry, args=(source, sink), daemon=True).start()

    def carry(self, source: socket.socket, sink: socket.socket) -> None:
        try:
            while data := source.recv(65536):
                sink.sendall(data)
        except OSError:
            pass
        self.end({source, sink})

    def end(self, sockets: set[socket.socket]) -> None:
        with self.lock:
            self.open -= sockets
        for each in sockets:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def break_all(self) -> None:
        with self.lock:
            sockets = set(self.open)
        self.broken += len(sockets) // 2
        self.end(sockets)

    def close(self) -> None:
        self.running = False
        self.server.close()
        self.break_all()


def run_faults(arguments) -> int:
    """Undisturbed, and with the operator killed, its connections broken, the API server restarted, and others who write, too."""
    def once(kills: int) -> tuple[dict, collections.Counter]:
        plane = ControlPlane(10, audits=True)
        proxy = BreakingProxy(plane.port)
        try:
            install(plane)
            plane.make_namespace(SPACE)
            chance = random.Random(arguments.seed)
            operator = start_operator(plane, webhooks=False, port=proxy.port)
            creator = threading.Thread(target=create_all, args=(plane, arguments.graphs))
            creator.start()
            for number in range(kills):
                time.sleep(chance.uniform(0.05, 2.0))
                name = f"g{chance.randrange(arguments.graphs)}"
                for kind in ("DynamoGraphDeployment", "DynamoGraphDeploymentScalingAdapter"):  # versions that the operator has seen are old now
                    with contextlib.suppress(ApiError):
                        own = name if kind == "DynamoGraphDeployment" else f"{name}-worker"
                        plane.api.patch(kind, own, {"metadata": {"annotations": {"others": str(number)}}}, SPACE)
                if number % 3 == 0:
                    proxy.break_all()
                    continue
                operator.kill()
                lease = plane.api.get("Lease", "stator-operator", "stator-system")
                if lease:  # what a new pod would wait for
                    plane.api.patch("Lease", "stator-operator", {"spec": {"holderIdentity": ""}}, "stator-system")
                operator.close()
                if number == kills // 2:
                    creator.join()
                    plane.restart_api_server(1)
                operator = start_operator(plane, webhooks=False, port=proxy.port)
            creator.join()
            eventually(lambda: count_ready(plane) == arguments.graphs, "all graphs are ready", 900, 1)
            time.sleep(5)  # what is written although all is ready counts, too
            found, writes = objects(plane), plane.writes_of("stator-operator")
            operator.close()
            return found, writes
        finally:
            proxy.close()
            plane.close()
    calm, calm_writes = once(0)
    wild, wild_writes = once(arguments.kills)
    missing_objects, extra = sorted(set(calm) - set(wild)), sorted(set(wild) - set(calm))
    different = sorted(key for key in set(calm) & set(wild) if calm[key] != wild[key])
    ratio = wild_writes.total() / calm_writes.total()
    print(json.dumps({"kills": arguments.kills, "graphs": arguments.graphs, "objects": len(calm), "missing": missing_objects,
                      "orphaned": extra, "different": different, "writes": calm_writes.total(), "writes_under_faults": wild_writes.total(),
                      "ratio": round(ratio, 3)}))
    if arguments.verbose:
        print(json.dumps({"calm": calm_writes, "wild": wild_writes}, indent=1, sort_keys=True))
    return 1 if missing_objects or extra or different or ratio > 1.2 else 0


def run_gangs(arguments) -> int:
    plane = ControlPlane(0)
    try:
        for index in range(arguments.racks * 4):
            plane.add_node(f"node-{index}", 8, {"rack": f"r{index // 4}"})
        install(plane)
        plane.make_namespace(SPACE)
        operator = start_operator(plane)
        eventually(lambda: plane.api.get("ValidatingWebhookConfiguration", "stator-operator"), "the webhooks are known")
        plane.api.apply({"apiVersion": "grove.io/v1alpha1", "kind": "ClusterTopologyBinding", "metadata": {"name": "t"}, "spec": {
            "levels": [{"domain": "rack", "key": "rack"}, {"domain": "host", "key": "kubernetes.io/hostname"}]}})
        begin, cpu = time.monotonic(), usage_of(operator.process.pid)[0]
        for number in range(arguments.gangs):
            plane.api.create(yaml.safe_load(f"""
{{apiVersion: grove.io/v1alpha1, kind: PodCliqueSet, metadata: {{name: s{number}}}, spec: {{replicas: 1, template: {{
  topologyConstraint: {{topologyName: t, pack: {{preferred: rack}}}},
  cliques: [{{name: w, spec: {{roleName: w, replicas: 16, podSpec: {{containers: [{{name: m, image: i, resources: {{limits: {{nvidia.com/gpu: "1"}}}}}}]}}}}}}]}}}}}}"""), SPACE)
        partial = 0
        whole = 0
        want = min(arguments.gangs, arguments.racks * 2)
        while whole < want and time.monotonic() - begin < 900:
            time.sleep(1)
            bound: dict[str, list] = {}
            for pod in plane.api.list("Pod", SPACE):
                bound.setdefault(pod["metadata"]["labels"]["grove.io/podgang"], []).append(pod["spec"].get("nodeName"))
            whole = sum(None not in nodes and len(nodes) == 16 for nodes in bound.values())
            # While the scheduler binds the pods of a gang one by one, all of them must have been let go.
            partial = max(partial, sum(0 < sum(node is not None for node in nodes) < len(nodes) for nodes in bound.values()))
        took = time.monotonic() - begin
        time.sleep(3)
        racks: dict[str, set] = {}
        left_alone = 0
        for pod in plane.api.list("Pod", SPACE):
            gang = pod["metadata"]["labels"]["grove.io/podgang"]
            node = pod["spec"].get("nodeName")
            racks.setdefault(gang, set()).add(node and f"r{int(node.split('-')[1]) // 4}")
        left_alone = sum(None in found and len(found) > 1 for found in racks.values())
        one = sum(len(found) == 1 and None not in found for found in racks.values())
        print(json.dumps({"racks": arguments.racks, "gangs": arguments.gangs, "whole": whole, "partial_at_rest": left_alone,
                          "in_one_rack": round(one / max(1, whole), 3), "seconds": round(took, 1),
                          "operator_cpu_s": round(usage_of(operator.process.pid)[0] - cpu, 1)}))
        operator.close()
        return 1 if left_alone or whole < want else 0
    finally:
        plane.close()


def main() -> int:
    if missing():
        print(f"skipped: {missing()}")
        return 77
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("graphs", "floor", "faults", "gangs"))
    for name, value in (("nodes", 100), ("graphs", 0), ("kills", 50), ("racks", 20), ("gangs", 50), ("seed", 5), ("limit", 3600),
                        ("updates", 100)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--verbose", action="store_true", help="faults: writes by kind and verb")
    arguments = parser.parse_args()
    arguments.graphs = arguments.graphs or (1000 if arguments.what in ("graphs", "floor") else 20)
    return {"graphs": run_graphs, "floor": run_floor, "faults": run_faults, "gangs": run_gangs}[arguments.what](arguments)


if __name__ == "__main__":
    sys.exit(main())
