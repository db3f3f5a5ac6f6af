#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""After some traffic of each kind, every metric family of Dynamo is there with its labels, or the reference page says why it is not."""

import re
import unittest

from stator_process import MODEL, ROOT, DeploymentTest, Split, Stator, eventually

PAGE = ROOT / "docs" / "reference" / "dynamo_metrics.md"
PER_REQUEST = {"model", "endpoint", "request_type"}
WORKER = {"dynamo_namespace", "dynamo_component", "dynamo_endpoint", "model"}
# Suffix → labels, of dynamo_frontend_.
FRONTEND = {
    "requests_total": PER_REQUEST | {"status", "error_type"}, "requests_started_total": PER_REQUEST, "active_requests": {"model"},
    "inflight_requests": {"model"}, "queued_requests": {"model"}, "disconnected_clients": set(), "request_duration_seconds": {"model"},
    "time_to_first_token_seconds": {"model"}, "inter_token_latency_seconds": {"model"}, "input_sequence_tokens": {"model"},
    "output_sequence_tokens": {"model"}, "output_tokens_total": {"model"}, "cached_tokens": {"model"}, "embedding_latency_seconds": {"model"},
    "tokenizer_latency_ms": {"operation"}, "tokenizer_cache_hits_total": set(), "tokenizer_cache_misses_total": set(), "tokenize_seconds": set(),
    "template_seconds": set(), "detokenize_total_us": set(), "detokenize_token_count": set(), "stage_requests": {"stage", "phase"},
    "stage_duration_seconds": {"stage"}, "event_loop_delay_seconds": set(), "event_loop_stall_total": set(),
    "model_total_kv_blocks": {"model"}, "model_max_num_seqs": {"model"}, "model_max_num_batched_tokens": {"model"},
    "model_context_length": {"model"}, "model_kv_cache_block_size": {"model"}, "model_migration_limit": {"model"},
    "worker_active_decode_blocks": {"worker_id", "dp_rank", "worker_type"}, "worker_active_prefill_tokens": {"worker_id", "dp_rank", "worker_type"},
    "worker_last_time_to_first_token_seconds": {"worker_id", "dp_rank", "worker_type"},
    "worker_last_input_sequence_tokens": {"worker_id", "dp_rank", "worker_type"},
    "worker_last_inter_token_latency_seconds": {"worker_id", "dp_rank", "worker_type"},
    "router_queue_pending_requests": set(), "router_queue_pending_isl_tokens": set(), "router_queue_pending_cached_tokens": set(),
}
ROUTER = ["router_requests_started_total", "router_requests_total", "router_time_to_first_token_seconds", "router_inter_token_latency_seconds",
          "router_input_sequence_tokens", "router_output_sequence_tokens", "router_kv_hit_rate", "router_non_max_overlap_selections_total",
          "router_overlap_blocks_lost", "router_worker_registered", "router_kv_event_source_mismatch_workers", "kv_cache_events_applied"]
PLANE = ["dynamo_request_plane_queue_seconds", "dynamo_request_plane_send_seconds", "dynamo_request_plane_roundtrip_ttft_seconds",
         "dynamo_request_plane_inflight_requests", "dynamo_transport_tcp_pool_active", "dynamo_transport_tcp_bytes_sent_total",
         "dynamo_transport_tcp_bytes_received_total", "dynamo_transport_tcp_errors_total", "dynamo_router_overhead_block_hashing_ms",
         "dynamo_router_overhead_indexer_find_matches_ms", "dynamo_router_overhead_scheduling_ms", "dynamo_router_overhead_total_ms"]
WORKERS = ["component_requests_total", "component_request_bytes_total", "component_response_bytes_total", "component_inflight_requests",
           "component_request_duration_seconds", "component_errors_total", "component_cancellation_total", "component_total_blocks",
           "component_gpu_cache_usage_percent", "component_kv_cache_hit_rate",
           "work_handler_network_transit_seconds", "work_handler_time_to_first_response_seconds", "work_handler_permit_wait_seconds",
           "work_handler_queue_depth", "work_handler_queue_capacity", "work_handler_enqueue_rejected_total", "work_handler_pool_active_tasks",
           "work_handler_pool_capacity"]
# Come with what this test does not do; other tests look at them.
ELSEWHERE = ["tokenizer_cache_cached_tokens_total", "tokenizer_cache_uncached_tokens_total", "model_cancellation_total", "model_rejection_total",
             "component_model_load_time_seconds", "model_migration_total", "model_migration_duration_seconds", "model_migration_max_seq_len_exceeded_total", "router_queue_backpressure_total",
             "lora_replica_factor", "lora_is_active", "lora_raw_arrival_count", "lora_active_requests", "lora_churn_loads_total", "lora_churn_unloads_total",
             "router_kv_transfer_estimated_latency_seconds", "router_remote_indexer_query_failures_total", "router_remote_indexer_write_failures_total",
             "component_uptime_seconds"]
LEFT_OUT = ["images_per_request", "image_tokens_per_request", "lora_estimated_load", "lora_overflow_count", "cleanup_time_seconds", "drain_time_seconds",
            "kv_publisher_", "router_shared_cache_", "overhead_shared_cache_query_ms", "overhead_seq_hashing_ms", "pool_idle", "server_queue_depth",
            "accept_backoff_total", "transport_nats_errors_total", "rejection_request_total", "tasks_", "kvbm_"]


def families(text: str) -> dict[str, set[str]]:
    """Family → labels of one of its series; empty for one without any."""
    found: dict[str, set[str]] = {}
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            found[line.split()[2]] = set()
        elif line and not line.startswith("#"):
            name, _, labels = line.rpartition(" ")[0].partition("{")
            family = name if name in found else re.sub("_(bucket|sum|count)$", "", name)
            found.setdefault(family, set()).update(re.findall(r'(\w+)="', labels))
    return found


class DynamoMetrics(DeploymentTest):
    @classmethod
    def deploy(cls):
        return Split(workers=1, worker_arguments=("--sim-speedup", "0", "--system-port", "0"))

    def send_traffic(self):
        chat = {"model": MODEL, "messages": [{"role": "user", "content": "What is a KV cache? " * 20}], "max_tokens": 20}
        requests = [("/v1/chat/completions", chat), ("/v1/chat/completions", chat | {"stream": True}), ("/v1/chat/completions", chat),
                    ("/v1/completions", {"model": MODEL, "prompt": "a", "max_tokens": 4}), ("/v1/responses", {"model": MODEL, "input": "Hi"}),
                    ("/v1/messages", {"model": MODEL, "max_tokens": 4, "messages": chat["messages"]}),
                    ("/v1/embeddings", {"model": MODEL, "input": ["a", "b"]}), ("/v1/chat/completions", chat | {"temperature": 9})]
        answers = {path: self.http.request("POST", path, body)[0] for path, body in requests[:-1]}
        self.assertEqual(set(answers.values()), {200}, answers)
        self.assertEqual(self.http.request("POST", *requests[-1])[0], 400)
        eventually(lambda: self.http.metric("dynamo_component_kv_cache_events_applied") > 0, "the router hears of KV blocks")

    def test_families_and_labels_are_there(self):
        self.send_traffic()
        worker: Stator = self.deployment.workers[0]
        front = families(self.http.request("GET", "/metrics")[2].decode())
        system = families(type(self.http)(worker.ready["system_port"]).request("GET", "/metrics")[2].decode())
        for suffix, labels in FRONTEND.items():
            with self.subTest(suffix):
                self.assertIn(f"dynamo_frontend_{suffix}", front)
                shown = front[f"dynamo_frontend_{suffix}"]
                self.assertLessEqual(labels | {"dynamo_namespace"}, shown | ({*labels, "dynamo_namespace"} if not shown else set()))
        for name in [*(f"dynamo_component_{name}" for name in ROUTER), *PLANE]:
            with self.subTest(name):
                self.assertIn(name, front)
        for name in WORKERS:
            with self.subTest(name):
                self.assertLessEqual(WORKER, system.get(f"dynamo_{name}", set()) | ({*WORKER} if system.get(f"dynamo_{name}") == set() else set()))
                self.assertIn(f"dynamo_{name}", system)

    def test_the_page_names_all_of_them(self):
        # "{a,b}_c" in the page stands for a_c and b_c.
        page = PAGE.read_text(encoding="utf-8")
        for _ in range(3):
            page = re.sub(r"(\w*)\{([a-z_,]+)\}(\w*)", lambda m: " ".join(m[1] + part + m[3] for part in m[2].split(",")), page)
        told, left = page.split("## Left out")
        for name in [*FRONTEND, *ROUTER, *WORKERS, *(name.removeprefix("dynamo_") for name in PLANE), *ELSEWHERE]:
            self.assertIn(name, told)
        for name in LEFT_OUT:
            self.assertIn(name, left)
        self.assertGreaterEqual(len({*FRONTEND, *ROUTER, *WORKERS, *PLANE, *ELSEWHERE, *LEFT_OUT}), 116)


if __name__ == "__main__":
    unittest.main()
