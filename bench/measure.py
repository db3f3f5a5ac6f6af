# SPDX-License-Identifier: Apache-2.0
"""What the bench scripts share: a server under test, the load generator, and bars."""

import argparse
import contextlib
import dataclasses
import json
import os
import pathlib
import resource
import selectors
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[1]
READY_TIMEOUT_S = 60
LOAD_TIMEOUT_S = 300
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
MODEL = ROOT / "models" / "demo"


class BenchError(Exception):
    """The measurement itself failed; the text says what to change."""


@dataclasses.dataclass
class Bar:
    """A measured figure beside the figure it must not exceed."""

    name: str
    value: float
    limit: float | None  # None: shown for information, no bar
    unit: str
    peer: str = "–"  # the same figure of NVIDIA Dynamo on a comparable machine, where measured
    note: str = ""

    @property
    def met(self):
        return self.limit is None or self.value <= self.limit

    def row(self):
        limit, verdict = "–", "–"
        if self.limit is not None:
            limit = f"≤ {self.limit:g} {self.unit}"
            verdict = "met" if self.met else "MISSED"
        return (f"| {self.name} | {self.value:.3g} {self.unit} | {limit} | {verdict} "
                f"| {self.peer} | {self.note} |")


TABLE_HEAD = "| what | measured | bar | verdict | Dynamo | note |\n|---|---|---|---|---|---|"


def parse_arguments(description, add_options=lambda parser: None):
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--stator", type=pathlib.Path,
                        default=ROOT / "build" / "release" / "bin" / "stator")
    parser.add_argument("--model", type=pathlib.Path, default=MODEL)
    parser.add_argument("--rows", action="store_true", help="print table rows only, for run_all.sh")
    parser.add_argument("--strict", action="store_true", help="exit 1 when a bar is missed")
    add_options(parser)
    return parser.parse_args()


def main(measure, options):
    """Runs `measure(options)`, which returns bars; prints them; exits as documented."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    try:
        bars = measure(options)
    except BenchError as error:
        print(f"{pathlib.Path(sys.argv[0]).name}: {error}", file=sys.stderr)
        sys.exit(2)
    if not options.rows:
        print(TABLE_HEAD)
    for bar in bars:
        print(bar.row())
    sys.exit(1 if options.strict and not all(bar.met for bar in bars) else 0)


def detail(options, text):
    """Figures beside the bars; on stderr, so that rows stay rows."""
    print(text, file=sys.stderr if options.rows else sys.stdout, flush=True)


def raise_descriptor_limit():
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


def pinned(core, command):
    return [str(part) for part in ([] if core is None else ["taskset", "-c", core]) + command]


class Server:
    """`stator serve` with --announce, from exec to SIGTERM; use as a context manager."""

    def __init__(self, options, flags, core=None):
        if not options.stator.exists():
            raise BenchError(f"{options.stator} does not exist; build it or give --stator PATH")
        self.log = tempfile.NamedTemporaryFile("w+", prefix="stator-bench-", suffix=".log")
        command = [options.stator, "serve", options.model, "--port", "0", "--announce",
                   "--host", "127.0.0.1", *flags]
        started = time.monotonic()
        self.process = subprocess.Popen(pinned(core, command), stdout=subprocess.PIPE,
                                        stderr=self.log, preexec_fn=raise_descriptor_limit)
        try:
            ready = json.loads(self._first_line())
        except BenchError:
            self.process.kill()
            self.process.wait()
            raise
        self.startup_s = time.monotonic() - started
        self.url, self.port, self.pid = ready["url"], ready["port"], self.process.pid

    def _first_line(self):
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            if not selector.select(READY_TIMEOUT_S):
                raise BenchError(f"the server was not ready within {READY_TIMEOUT_S} s")
        line = self.process.stdout.readline()
        if not line:
            self.log.seek(0)
            raise BenchError(f"the server did not start: {self.log.read()[-500:]}")
        return line

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(1)
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)  # the second one ends the drain
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(20)
        if self.process.poll() is None:
            self.process.kill()
        if self.process.wait() != 0:
            print(f"warning: the server ended with status {self.process.returncode} when stopped; "
                  "the figures stand, the shutdown needs a look", file=sys.stderr)

    def rss_kib(self):
        for line in pathlib.Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1])
        raise BenchError("the server died")

    def cpu_s(self):
        """User and system time of the whole process so far, to the nanosecond."""
        return time.clock_gettime(~self.pid << 3 | 2)  # clock_getcpuclockid(3): CPUCLOCK_SCHED of a process

    def thread_cpu_s(self):
        """CPU seconds by thread name; threads of one name are added up."""
        seconds = {}
        for task in pathlib.Path(f"/proc/{self.pid}/task").iterdir():
            with contextlib.suppress(OSError):
                head, _, tail = (task / "stat").read_text().rpartition(")")
                user, system = tail.split()[11:13]
                name = head.partition("(")[2]
                seconds[name] = seconds.get(name, 0) + (int(user) + int(system)) / TICKS_PER_S
        return seconds

    def post(self, body, path="/v1/chat/completions"):
        request = urllib.request.Request(self.url + path, json.dumps(body).encode(),
                                         {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return json.load(answer)
        except OSError as error:
            text = error.read()[:300] if hasattr(error, "read") else b""
            raise BenchError(f"POST {path} failed: {error} {text!r}") from error

    def metric_sum(self, name):
        """Sum over all series of one metric of GET /metrics."""
        with urllib.request.urlopen(self.url + "/metrics", timeout=30) as answer:
            lines = answer.read().decode().splitlines()
        return sum(float(line.rpartition(" ")[2]) for line in lines
                   if line.startswith((name + "{", name + " ")))

    def model_name(self):
        with urllib.request.urlopen(self.url + "/v1/models", timeout=30) as answer:
            return json.load(answer)["data"][0]["id"]


def write_bodies(folder, bodies):
    path = pathlib.Path(folder) / "bodies.jsonl"
    path.write_text("".join(json.dumps(body, separators=(",", ":")) + "\n" for body in bodies))
    return path


def start_load(options, server, flags, core=None):
    """`stator bench` on the server; its report is read with `read_report`."""
    command = [options.stator, "bench", "--url", server.url, "--model", server.model_name(),
               "--allow-client-bound", "--json", "-", *flags]
    return subprocess.Popen(pinned(core, command), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                            text=True)


def read_report(process):
    out, _ = process.communicate(timeout=LOAD_TIMEOUT_S)
    if process.returncode != 0:
        raise BenchError(f"the load generator ended with status {process.returncode}")
    report = json.loads(out)
    if report["error_summary"]:
        raise BenchError(f"requests failed: {report['error_summary']}")
    return report


def run_load(options, server, flags, core=None):
    """The report, and the CPU seconds that the server spent meanwhile."""
    before = server.cpu_s()
    report = read_report(start_load(options, server, flags, core))
    return report, server.cpu_s() - before


def median(values):
    return statistics.median(values)
