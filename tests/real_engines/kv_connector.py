#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Real vLLM engines on the CPU with Stator's KV connector: greedy tokens equal to vLLM alone, hits of a new engine from each tier, an
engine that uses what another one put into a `stator store`. Runs in vLLM's own interpreter; prints a line per engine and a JSON summary.

usage: VENV/bin/python tests/real_engines/kv_connector.py --model DIR --work DIR [--prompts 200] [--tokens 300] [--steps disk,store,object,sync]

Engines live one after the other in this process (VLLM_ENABLE_V1_MULTIPROCESSING=0): scheduler, worker, cache and connector are made anew
each time, and only what is on disk or in a store outlives them.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import pathlib
import random
import shutil
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / "e2e"), str(ROOT / "bindings" / "python")]
os.environ |= {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1",
               "VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind", "OMP_NUM_THREADS": "1",
               "VLLM_LOGGING_LEVEL": os.environ.get("VLLM_LOGGING_LEVEL", "WARNING")}
BLOCK = 32


class Engine:
    """`extra` is the connector's configuration, None: vLLM alone."""

    def __init__(self, options, extra: dict | None):
        from vllm import LLM
        from vllm.config import KVTransferConfig
        transfer = {} if extra is None else {"kv_transfer_config": KVTransferConfig(
            kv_connector="StatorConnector", kv_connector_module_path="stator_kv.vllm_connector", kv_role="kv_both",
            kv_load_failure_policy="recompute", kv_connector_extra_config=extra)}
        self.llm = LLM(model=options.model, dtype="bfloat16", enforce_eager=True, max_model_len=1024, block_size=BLOCK,
                       num_gpu_blocks_override=options.blocks, max_num_seqs=8, enable_prefix_caching=True, disable_log_stats=False,
                       **transfer)

    def counter(self, name: str) -> float:
        return sum(metric.value for metric in self.llm.get_metrics() if metric.name == name)

    def ask(self, prompts: list[list[int]]) -> list[list[int]]:
        from vllm import SamplingParams
        outputs = self.llm.generate([{"prompt_token_ids": prompt} for prompt in prompts],
                                    SamplingParams(temperature=0, max_tokens=12, ignore_eos=True), use_tqdm=False)
        return [list(output.outputs[0].token_ids) for output in outputs]

    def stop(self) -> None:
        self.llm.llm_engine.engine_core.shutdown()
        del self.llm
        from vllm.distributed.parallel_state import cleanup_dist_env_and_memory
        cleanup_dist_env_and_memory()
        gc.collect()


def prompts_of(options) -> list[list[int]]:
    """A quarter of them share a beginning."""
    source = random.Random(7)
    shared = [source.randrange(3, 32_000) for _ in range(options.tokens // 2)]
    out = []
    for n in range(options.prompts):
        own = [source.randrange(3, 32_000) for _ in range(options.tokens + n % 40)]
        out.append(shared + own[len(shared):] if n % 4 == 0 else own)
    return out


class Run:
    def __init__(self, options):
        self.options, self.prompts, self.summary = options, prompts_of(options), {}

    def run(self, name: str, extra: dict | None, expected: list | None) -> list:
        begin = time.monotonic()
        engine = Engine(self.options, extra)
        ready = time.monotonic()
        answers = engine.ask(self.prompts)
        seconds = time.monotonic() - ready
        hits, local = engine.counter("vllm:external_prefix_cache_hits"), engine.counter("vllm:prefix_cache_hits")
        engine.stop()
        possible = sum((len(prompt) - 1) // BLOCK * BLOCK for prompt in self.prompts)
        equal = sum(a == b for a, b in zip(answers, expected)) if expected else len(answers)
        self.summary[name] = {"equal": equal, "of": len(answers), "external_hit_tokens": hits, "local_hit_tokens": local,
                              "tokens_in_full_blocks": possible, "hit_ratio": round(hits / max(possible - local, 1), 4),
                              "seconds": round(seconds, 1)}
        print(f"{name}: {equal} of {len(answers)} equal; from the tiers {hits:.0f} of {possible - local:.0f} tokens that vLLM did not have "
              f"({self.summary[name]['hit_ratio']:.1%}), {seconds:.0f} s, engine ready after {ready - begin:.0f} s", flush=True)
        return answers

    def main(self) -> None:
        from stator_process import Stator
        alone = self.run("vllm alone", None, None)
        for step in self.options.steps.split(","):
            folder = pathlib.Path(self.options.work).resolve() / step
            shutil.rmtree(folder, ignore_errors=True)
            store, second = None, "second engine"
            if step in ("disk", "sync"):
                extra = {"host_bytes": "64MiB", "disk": str(folder), "disk_bytes": "512MiB"} | ({"load": "sync"} if step == "sync" else {})
            elif step == "object":
                extra = {"host_bytes": "64MiB", "object": f"file://{folder}"}
            else:
                store = Stator("store", "--listen", "127.0.0.1:0", "--host-bytes", "512MiB")
                extra = {"store": f"store://127.0.0.1:{store.port}", "load_timeout_ms": 20_000}
            self.run(f"{step}: cold", extra, alone)
            self.run(f"{step}: {second}", extra, alone)
            if store is not None:
                store.close()
        print(json.dumps(self.summary))
        bad = [name for name, row in self.summary.items()
               if row["equal"] < row["of"] or ("second" in name and row["hit_ratio"] < 0.95)]
        sys.exit(f"below the bar: {bad}" if bad else 0)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--work", required=True)
    parser.add_argument("--prompts", type=int, default=200)
    parser.add_argument("--tokens", type=int, default=300)
    parser.add_argument("--blocks", type=int, default=128, help="vLLM's own cache: small, so that it does not hide the tiers")
    parser.add_argument("--steps", default="disk,store,object,sync")
    Run(parser.parse_args()).main()
