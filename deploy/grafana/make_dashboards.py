#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the Grafana dashboards beside it: one table of panels per dashboard, so that a review shows queries and not layout.

usage: deploy/grafana/make_dashboards.py [--check]     --check: fail if a file differs from what would be written
"""

import json
import pathlib
import sys

HERE = pathlib.Path(__file__).parent
RATE = "[$__rate_interval]"


def quantiles(metric: str, by: str = "") -> list[tuple[str, str]]:
    group = f"le{', ' + by if by else ''}"
    return [(f"histogram_quantile({q}, sum by ({group}) (rate({metric}_bucket{{model=~\"$model\"}}{RATE})))",
             f"p{round(q * 100)}{' {{' + by + '}}' if by else ''}") for q in (0.5, 0.9, 0.99)]


# Title, unit, [(query, legend)].
OVERVIEW = [
    ("Requests per second", "reqps", [(f'sum by (model, status) (rate(dynamo_frontend_requests_total{{model=~"$model"}}{RATE}))',
                                       "{{model}} {{status}}")]),
    ("Success rate", "percentunit", [(f'1 - (sum(rate(dynamo_frontend_requests_total{{model=~"$model",error_type="internal"}}{RATE})) or vector(0)) '
                                      f'/ sum(rate(dynamo_frontend_requests_total{{model=~"$model"}}{RATE}))', "success")]),
    ("Output tokens per second", "short", [(f'sum by (model) (rate(dynamo_frontend_output_tokens_total{{model=~"$model"}}{RATE}))', "{{model}}")]),
    ("Running requests", "short", [('sum by (model) (dynamo_frontend_inflight_requests{model=~"$model"})', "{{model}} running"),
                                   ('sum by (model) (dynamo_frontend_router_queue_pending_requests{model=~"$model"})', "{{model}} queued")]),
    ("Time to first token", "s", quantiles("dynamo_frontend_time_to_first_token_seconds")),
    ("Time between tokens", "s", quantiles("dynamo_frontend_inter_token_latency_seconds")),
    ("Request duration", "s", quantiles("dynamo_frontend_request_duration_seconds")),
    ("Prompt tokens", "short", quantiles("dynamo_frontend_input_sequence_tokens")),
    ("Output tokens per request", "short", quantiles("dynamo_frontend_output_sequence_tokens")),
    ("Outcomes", "reqps", [(f'sum by (error_type) (rate(dynamo_frontend_requests_total{{model=~"$model"}}{RATE}))', "{{error_type}}")]),
    ("Memory of the process", "bytes", [("process_resident_memory_bytes", "{{instance}}")]),
    ("CPU of the process", "percentunit", [(f"rate(process_cpu_seconds_total{RATE})", "{{instance}}")]),
]
ROUTING = [
    ("Share of prompt blocks found in a cache", "percentunit", [(f"sum(rate(stator_router_overlap_blocks_total{RATE})) / sum(rate(stator_router_prompt_blocks_total{RATE}))", "hit rate")]),
    ("Cached tokens: expected and found", "short", [(f'sum(rate(stator_router_cached_tokens_expected_total{{model=~"$model"}}{RATE}))', "expected"),
                                                    (f'sum(rate(stator_router_cached_tokens_found_total{{model=~"$model"}}{RATE}))', "found")]),
    ("Routing overhead", "ms", [(f"rate(dynamo_router_overhead_{stage}_ms_sum{RATE}) / rate(dynamo_router_overhead_{stage}_ms_count{RATE})", stage)
                                for stage in ("block_hashing", "indexer_find_matches", "scheduling", "total")]),
    ("Decode blocks by worker", "short", [('dynamo_frontend_worker_active_decode_blocks{model=~"$model"}', "{{worker_id}}")]),
    ("Prefill tokens by worker", "short", [('dynamo_frontend_worker_active_prefill_tokens{model=~"$model"}', "{{worker_id}}")]),
    ("Requests by worker", "short", [('stator_router_worker_active_requests{model=~"$model"}', "{{worker_id}}")]),
    ("Queue", "short", [('sum by (model, worker_type) (dynamo_frontend_router_queue_pending_requests{model=~"$model"})', "{{model}} {{worker_type}}")]),
    ("Shed from the queue", "reqps", [(f'sum by (reason) (rate(dynamo_frontend_router_queue_backpressure_total{{model=~"$model"}}{RATE}))', "{{reason}}")]),
    ("Refused by the router", "reqps", [(f"sum by (reason) (rate(stator_router_refusals_total{RATE}))", "{{reason}}")]),
    ("KV events applied", "ops", [(f"sum by (event_type, status) (rate(dynamo_component_kv_cache_events_applied{RATE}))", "{{event_type}} {{status}}")]),
    ("Workers by trust of their index", "short", [("sum by (trust) (stator_router_index_workers)", "{{trust}}")]),
    ("Blocks in the index", "short", [("stator_router_index_blocks", "blocks")]),
]
ENGINES = [
    ("KV blocks in use", "percentunit", [("stator_engine_kv_blocks_used / (stator_engine_kv_blocks_total > 0)", "{{engine}}")]),
    ("KV blocks kept for later", "percentunit", [("stator_engine_kv_blocks_cached / (stator_engine_kv_blocks_total > 0)", "{{engine}}")]),
    ("Host memory tier", "percentunit", [("stator_engine_kv_host_blocks_stored / (stator_engine_kv_host_blocks_total > 0)", "{{engine}}")]),
    ("Running and waiting", "short", [("stator_engine_running_requests", "{{engine}} running"), ("stator_engine_waiting_requests", "{{engine}} waiting")]),
    ("Prefix cache hit rate", "percentunit", [(f"rate(stator_engine_prefix_cache_hit_tokens_total{RATE}) / rate(stator_engine_prefix_cache_query_tokens_total{RATE})", "{{engine}}")]),
    ("Computed and generated tokens", "short", [(f"rate(stator_engine_computed_tokens_total{RATE})", "{{engine}} computed"),
                                                (f"rate(stator_engine_generated_tokens_total{RATE})", "{{engine}} generated")]),
    ("Preemptions", "ops", [(f"rate(stator_engine_preemptions_total{RATE})", "{{engine}}")]),
    ("Time per step", "s", [(f"histogram_quantile(0.99, sum by (le, engine) (rate(stator_engine_step_seconds_bucket{RATE})))", "{{engine}} p99")]),
    ("Wait in the engine", "s", [(f"rate(stator_engine_queue_wait_microseconds_total{RATE}) / 1e6 / rate(stator_engine_admitted_requests_total{RATE})", "{{engine}}")]),
    ("Workers", "short", [("sum by (state) (stator_runtime_pool_workers)", "{{state}}")]),
]
ACCESS = [
    ("Refused callers", "reqps", [(f"rate(stator_access_unauthenticated_total{RATE})", "unknown credentials"),
                                  (f"rate(stator_access_denied_total{RATE})", "not allowed")]),
    ("Over budget", "reqps", [(f"sum by (limit) (rate(stator_access_over_budget_total{RATE}))", "{{limit}}")]),
    ("Accepted credentials", "reqps", [(f"sum by (by) (rate(stator_access_accepted_total{RATE}))", "{{by}}")]),
    ("Lines about requests", "ops", [(f"sum by (file) (rate(stator_request_log_lines_total{RATE}))", "{{file}}")]),
    ("Lost lines", "ops", [(f"sum by (file, reason) (rate(stator_request_log_lines_dropped_total{RATE}))", "{{file}} {{reason}}")]),
    ("Spans", "ops", [(f"rate(stator_trace_spans_sent_total{RATE})", "sent"),
                      (f"sum by (reason) (rate(stator_trace_spans_dropped_total{RATE}))", "dropped {{reason}}")]),
    ("Connections", "short", [("stator_http_connections_open", "open")]),
    ("Memory budgets", "percentunit", [("stator_budget_bytes / stator_budget_limit_bytes", "{{budget}}")]),
]
DASHBOARDS = {"overview": ("Stator: overview", OVERVIEW), "routing": ("Stator: KV routing", ROUTING), "engines": ("Stator: engines", ENGINES),
              "access": ("Stator: access and telemetry", ACCESS)}


def dashboard(uid: str, title: str, panels: list) -> dict:
    source = {"type": "prometheus", "uid": "${source}"}
    return {
        "uid": f"stator-{uid}", "title": title, "tags": ["stator"], "schemaVersion": 39, "version": 1, "editable": True, "refresh": "10s",
        "time": {"from": "now-30m", "to": "now"},
        "templating": {"list": [
            {"name": "source", "label": "Data source", "type": "datasource", "query": "prometheus"},
            {"name": "model", "label": "Model", "type": "query", "datasource": source, "includeAll": True, "allValue": ".*", "multi": True,
             "current": {"text": "All", "value": "$__all"}, "refresh": 2,
             "query": {"query": "label_values(dynamo_frontend_requests_started_total, model)", "refId": "model"}}]},
        "panels": [{
            "id": i + 1, "title": name, "type": "timeseries", "datasource": source,
            "gridPos": {"h": 8, "w": 8, "x": 8 * (i % 3), "y": 8 * (i // 3)},
            "fieldConfig": {"defaults": {"unit": unit, "min": 0, "custom": {"fillOpacity": 8}}, "overrides": []},
            "targets": [{"refId": chr(65 + j), "datasource": source, "expr": query, "legendFormat": legend}
                        for j, (query, legend) in enumerate(queries)],
        } for i, (name, unit, queries) in enumerate(panels)],
    }


def main() -> int:
    stale = 0
    for uid, (title, panels) in DASHBOARDS.items():
        path = HERE / f"{uid}.json"
        text = json.dumps(dashboard(uid, title, panels), indent=1) + "\n"
        if "--check" in sys.argv:
            if not path.exists() or path.read_text() != text:
                print(f"{path.name} is not what make_dashboards.py writes: run it")
                stale += 1
        else:
            path.write_text(text)
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
