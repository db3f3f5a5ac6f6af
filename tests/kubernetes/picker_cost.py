#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What one request costs the endpoint picker: CPU of its process and its own time, for docs/benchmarks/kubernetes.md.

  tests/kubernetes/picker_cost.py [--endpoints 64] [--requests 5000] [--bytes 2000] [--model FOLDER]"""

import argparse
import json
import os
import pathlib
import re
import sys
import tempfile
import threading
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))

import grpc

from gateway_rig import PROCESS, load_protos
from free_ports import free_ports
from stator_process import Stator, eventually


def cpu_of(pid: int) -> float:
    fields = open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in (("endpoints", 64), ("requests", 5000), ("bytes", 2000), ("streams", 16)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--model", default="", help="folder: prompts are counted in its tokens")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        messages, _ = load_protos(folder)
        file = pathlib.Path(folder) / "endpoints"
        file.write_text("".join(f"10.0.{n // 250}.{n % 250 + 1}:8000\n" for n in range(arguments.endpoints)))
        port, health_port, metrics_port = free_ports(3)
        picker = Stator("epp", "--endpoints", str(file), "--host", "127.0.0.1", "--grpc-port", str(port), "--grpc-health-port",
                        str(health_port), "--health-port", str(metrics_port), "--drain-seconds", "0",
                        *(("--model", arguments.model) if arguments.model else ()), announce=False)
        try:
            channel = grpc.insecure_channel(f"127.0.0.1:{port}")
            grpc.channel_ready_future(channel).result(120)
            call = channel.stream_stream(PROCESS, messages.ProcessingRequest.SerializeToString, messages.ProcessingResponse.FromString)

            def ask(number: int) -> None:
                head = messages.ProcessingRequest()
                head.request_headers.headers.headers.add(key=":path", raw_value=b"/v1/completions")
                body = messages.ProcessingRequest()
                body.request_body.body = json.dumps({"model": "m", "prompt": f"{number % 50} " * (arguments.bytes // 3)}).encode()
                body.request_body.end_of_stream = True
                for answer in call(iter([head, body]), timeout=120):
                    if answer.HasField("request_body"):
                        break

            ask(0)
            begin = cpu_of(picker.process.pid)
            threads = [threading.Thread(target=lambda first=first: [ask(n) for n in range(first, arguments.requests, arguments.streams)])
                       for first in range(arguments.streams)]
            for each in threads:
                each.start()
            for each in threads:
                each.join()
            spent = cpu_of(picker.process.pid) - begin
            text = eventually(lambda: urllib.request.urlopen(f"http://127.0.0.1:{metrics_port}/metrics", timeout=60).read().decode(), "metrics")
            buckets = [(float(bound.replace("+Inf", "inf")), int(count)) for bound, count in re.findall(
                r'inference_extension_scheduler_e2e_duration_seconds_bucket\{[^}]*le="([^"]+)"\} (\d+)', text)]
            total = buckets[-1][1]
            median = next(bound for bound, count in buckets if count * 2 >= total)
            print(json.dumps({"endpoints": arguments.endpoints, "requests": arguments.requests, "body_bytes": arguments.bytes,
                              "cpu_us_per_request": round(spent / arguments.requests * 1e6, 1),
                              "requests_per_core_second": round(arguments.requests / spent), "own_time_p50_at_most_us": median * 1e6}))
        finally:
            picker.close()


if __name__ == "__main__":
    main()
