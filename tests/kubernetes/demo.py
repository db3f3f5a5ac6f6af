#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One answer, streamed through Envoy, the endpoint picker, a frontend beside the worker that was picked, and a worker; the pods of the graph are
real `stator` processes on a simulated node.

  tests/kubernetes/demo.py [--keep] [PROMPT]"""

import argparse
import contextlib
import http.client
import json
import sys
import time

import yaml

from control_plane import ApiError, ControlPlane, eventually, missing
from envoy_process import Envoy
from live_node import LiveNode
from rig import POOL_CRD, ROOT, install, start_operator

SPACE = "demo"
GRAPH = f"""
apiVersion: nvidia.com/v1beta1
kind: DynamoGraphDeployment
metadata: {{name: chat}}
spec:
  components:
  - name: Picker
    type: epp
    eppConfig: {{config: {{plugins: []}}}}
    podTemplate: {{spec: {{containers: [{{name: main, image: "stator:0.1.0"}}]}}}}
  - name: Worker
    type: worker
    replicas: 2
    frontendSidecar: frontend
    podTemplate:
      spec:
        containers:
        - name: main
          image: stator:0.1.0
          command: [stator, worker, {ROOT}/models/demo]
          args: [--engine, sim, --sim-speedup, "1", --discovery, kubernetes:$(POD_NAMESPACE), --worker-listen-host, $(POD_IP), --rpc-insecure,
                 --system-host, 0.0.0.0, --system-port, "9090"]
          env:
          - {{name: POD_IP, valueFrom: {{fieldRef: {{fieldPath: status.podIP}}}}}}
          - {{name: STATOR_SYSTEM_TOKEN, value: secret}}
        - name: frontend
          image: stator:0.1.0
          command: [stator, frontend]
          args: [--host, 0.0.0.0, --port, "8000", --discovery, kubernetes:$(POD_NAMESPACE)]
"""


def say(text: str) -> None:
    print(f"== {text}", file=sys.stderr, flush=True)


def create_graph(plane: ControlPlane) -> bool:
    """The operator looks every other second at what is installed: until then a picker is refused."""
    with contextlib.suppress(ApiError):
        return bool(plane.api.create(yaml.safe_load(GRAPH), SPACE))
    return False


def address_of_picker(plane: ControlPlane) -> str:
    pods = plane.api.list("Pod", SPACE, "nvidia.com/dynamo-component-type=epp")
    return pods[0]["status"].get("podIP", "") if pods else ""


def stream(port: int, prompt: str, show: bool) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request("POST", "/v1/chat/completions", json.dumps({
            "model": "demo", "stream": True, "max_tokens": 40, "temperature": 0, "messages": [{"role": "user", "content": prompt}]}),
            {"content-type": "application/json"})
        answer, text = connection.getresponse(), ""
        for line in answer:
            if answer.status != 200:
                text += line.decode(errors="replace")
            elif line.startswith(b"data: {"):
                piece = json.loads(line[6:])["choices"][0]["delta"].get("content") or ""
                text += piece
                if show:
                    print(piece, end="", flush=True)
        return answer.status, text
    except (OSError, http.client.HTTPException) as error:
        return 0, str(error)
    finally:
        connection.close()


def run(arguments, stack: contextlib.ExitStack) -> int:
    say("a control plane with one node")
    plane = ControlPlane(0, live=True)
    stack.callback(plane.close)
    install(plane)
    plane.api.create(POOL_CRD)
    plane.make_namespace(SPACE)
    node = LiveNode(plane)
    stack.callback(node.close)
    say("the operator, under the rights it ships with")
    operator = start_operator(plane)
    stack.callback(operator.close)
    eventually(lambda: plane.api.get("ValidatingWebhookConfiguration", "stator-operator"), "the webhooks are known", 240)
    say("a graph: an endpoint picker, two simulated workers with a frontend beside each")
    eventually(lambda: create_graph(plane), "the graph is accepted", 120)
    eventually(lambda: (plane.api.get("DynamoGraphDeployment", "chat", SPACE).get("status") or {}).get("state") == "successful",
               lambda: f"the graph is ready {node.ended} {node.logs()}", 240, 0.5)
    say("Envoy, which asks the picker")
    envoy = Envoy(plane.folder, address_of_picker(plane), 9002)
    stack.callback(envoy.close)
    last = [(0, "")]

    def is_answered() -> bool:
        last[0] = stream(envoy.port, "hello", False)
        return last[0][0] == 200
    eventually(is_answered, lambda: f"an answer; the last one is {last[0]}; {node.logs()}", 60, 0.5)
    say(f"{arguments.prompt}")
    status, text = stream(envoy.port, arguments.prompt, True)
    print(flush=True)
    say(f"HTTP {status}, {len(text)} characters through Envoy on port {envoy.port}")
    if arguments.keep:
        say(f"kubectl --kubeconfig {plane.folder}/kubeconfig -n {SPACE} get dgd,pods; Enter ends all of it")
        with contextlib.suppress(KeyboardInterrupt):
            sys.stdin.readline()
    return 0 if status == 200 and text else 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("prompt", nargs="?", default="What is a KV cache?")
    parser.add_argument("--keep", action="store_true", help="stay until Enter")
    arguments = parser.parse_args()
    if missing():
        print(f"skipped: {missing()}")
        return 77
    begin = time.monotonic()
    with contextlib.ExitStack() as stack:
        code = run(arguments, stack)
    say(f"{time.monotonic() - begin:.0f} s in all")
    return code


if __name__ == "__main__":
    sys.exit(main())
