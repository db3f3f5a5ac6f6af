// SPDX-License-Identifier: Apache-2.0
// The operators' page: reads what the admin listener serves to everybody (/metrics, /health, /requests, /receipts, /tenants, /config)
// and shows it. No library, no request to anybody else.
"use strict";

const byId = (id) => document.getElementById(id);
const kEveryMs = 2000;
let chosen = null;
let before = null;

function element(tag, text, attributes = {}) {
  const made = document.createElement(tag);
  if (text !== undefined && text !== null) made.textContent = text;
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  return made;
}

function fill(id, rows) {
  byId(id).replaceChildren(...rows.map((cells) => {
    const row = element("tr");
    cells.forEach((cell, i) => {
      const box = i === 0 ? element("th", null, { scope: "row" }) : element("td");
      box.append(cell instanceof Node ? cell : String(cell ?? ""));
      row.append(box);
    });
    return row;
  }));
}

/** Whether what is shown under `id` would look different now; the page is left alone while it would not. */
const shown = new Map();
function changed(id, value) {
  const text = JSON.stringify(value);
  if (shown.get(id) === text) return false;
  shown.set(id, text);
  return true;
}

function meter(used, total, label) {
  if (!total) return "–";
  const box = element("span");
  box.append(element("meter", null, { min: 0, max: total, value: used, "aria-label": label }), ` ${used} / ${total}`);
  return box;
}

const number = (value, digits = 0) => Number.isFinite(value) ? value.toFixed(digits) : "–";
const ms = (value) => value === undefined ? "–" : `${number(value, 1)} ms`;

/** Prometheus text → { name: [ { labels, value } ] }; buckets of histograms are not looked at. */
function parseMetrics(text) {
  const families = {};
  for (const line of text.split("\n")) {
    if (line.startsWith("#") || line.includes("_bucket{")) continue;
    const match = /^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)$/.exec(line);
    if (!match) continue;
    const labels = {};
    for (const pair of (match[2] || "").matchAll(/(\w+)="((?:[^"\\]|\\.)*)"/g)) labels[pair[1]] = pair[2];
    (families[match[1]] ||= []).push({ labels, value: Number(match[3]) });
  }
  return families;
}

const sum = (series) => (series || []).reduce((all, one) => all + one.value, 0);
const suffix = (families, end) => Object.entries(families).filter(([name]) => name.endsWith(end)).flatMap(([, series]) => series);
const find = (series, labels) => (series || []).find((one) => Object.entries(labels).every(([k, v]) => one.labels[k] === v))?.value ?? 0;

async function get(path) {
  const key = sessionStorage.getItem("key");
  const answer = await fetch(path, { headers: key ? { authorization: `Bearer ${key}` } : {}, cache: "no-store" });
  if (answer.status === 401 || answer.status === 403) {
    byId("login").hidden = false;
    throw new Error("an operator's key is needed");
  }
  byId("login").hidden = true;
  return answer;
}
const getJson = async (path) => (await get(path)).json();

function showFigures(metrics, now) {
  const tokens = sum(suffix(metrics, "_frontend_output_tokens_total"));
  const requests = sum(suffix(metrics, "_frontend_requests_total"));
  const seconds = before ? (now - before.now) / 1000 : 0;
  const rate = (current, earlier) => seconds > 0 ? number((current - earlier) / seconds, 1) : "–";
  const mean = (name) => {
    const count = sum(suffix(metrics, `${name}_count`));
    return count ? ms(1000 * sum(suffix(metrics, `${name}_sum`)) / count) : "–";
  };
  const figures = {
    "Running": number(sum(suffix(metrics, "_frontend_inflight_requests"))),
    "Requests/s": rate(requests, before?.requests), "Tokens/s": rate(tokens, before?.tokens),
    "Mean TTFT": mean("_frontend_time_to_first_token_seconds"), "Mean ITL": mean("_frontend_inter_token_latency_seconds"),
    "Requests": number(requests), "Connections": number(sum(metrics.stator_http_connections_open)),
    "Memory": `${number(sum(metrics.process_resident_memory_bytes) / 2 ** 20)} MiB`,
  };
  before = { now, tokens, requests };
  if (!changed("figures", figures)) return;
  byId("figures").replaceChildren(...Object.entries(figures).map(([name, value]) => {
    const box = element("div");
    box.append(element("dt", name), element("dd", value));
    return box;
  }));
}

function showWorkers(metrics, health) {
  const series = Object.entries(metrics).filter(([name]) => name.startsWith("stator_engine_") || name.includes("worker_active_"));
  if (!changed("workers", [series, health.instances])) return;
  const at = (name, id) => find(metrics[name] || suffix(metrics, name), { worker_id: String(id) });
  fill("worker-rows", (health.instances || []).map((one) => [
    one.instance_id, one.model, one.url,
    one.reason ? element("span", one.reason, { class: "bad" }) : "ready",
    at("stator_router_worker_active_requests", one.instance_id), at("_frontend_worker_active_decode_blocks", one.instance_id),
    at("_frontend_worker_active_prefill_tokens", one.instance_id)]));
  const engines = (metrics.stator_engine_kv_blocks_total || []).map((one) => one.labels);
  const of = (name, labels) => find(metrics[name], labels);
  fill("engine-rows", engines.map((labels) => [
    labels.engine, of("stator_engine_kv_blocks_used", labels), of("stator_engine_kv_blocks_cached", labels),
    meter(of("stator_engine_kv_blocks_used", labels) + of("stator_engine_kv_blocks_cached", labels),
          of("stator_engine_kv_blocks_total", labels), `KV blocks of ${labels.engine} in device memory`),
    meter(of("stator_engine_kv_host_blocks_stored", labels), of("stator_engine_kv_host_blocks_total", labels),
          `KV blocks of ${labels.engine} in host memory`),
    of("stator_engine_running_requests", labels), of("stator_engine_waiting_requests", labels)]));
}

function showQueue(metrics) {
  const waiting = suffix(metrics, "_frontend_router_queue_pending_requests");
  const pending = Object.entries(metrics).filter(([name]) => name.includes("_router_queue_pending_"));
  if (!changed("queue", pending)) return;
  fill("queue-rows", waiting.map(({ labels, value }) => [
    labels.model, labels.worker_type, value, find(suffix(metrics, "_frontend_router_queue_pending_isl_tokens"), labels),
    find(suffix(metrics, "_frontend_router_queue_pending_cached_tokens"), labels)]));
}

function showRequests(list) {
  if (!changed("requests", list)) return;
  const focused = document.activeElement?.dataset?.request;
  fill("request-rows", list.map((one) => {
    const button = element("button", one.request_id.slice(0, 8), { type: "button", "data-request": one.request_id,
      "aria-label": `Show request ${one.request_id}` });
    button.addEventListener("click", () => showDetail(one.request_id));
    const status = one.running ? "running" : one.error_type ? `${one.status} ${one.error_type}` : String(one.status);
    return [button, one.model, one.tenant || "–", one.error_type ? element("span", status, { class: "bad" }) : status, one.worker_id || "–",
            one.prompt_tokens, one.cached_tokens, one.output_tokens, ms(one.ttft_ms), ms(one.itl_ms), ms(one.duration_ms)];
  }));
  if (focused) document.querySelector(`[data-request="${CSS.escape(focused)}"]`)?.focus();
}

async function showDetail(id) {
  chosen = id;
  const [one] = await getJson(`../requests?request_id=${encodeURIComponent(id)}`);
  const receipt = await get(`../receipts/${encodeURIComponent(id)}?format=text`);
  const list = element("ol", null, { class: "timeline" });
  const steps = one?.timeline || [];
  const total = Math.max(one?.duration_ms || 0, 0.001);
  steps.forEach((step, i) => {
    const item = element("li");
    const next = steps[i + 1]?.at_ms ?? one.duration_ms;
    const bar = element("span", null, { class: "bar" });
    bar.style.width = `${100 * Math.max(next - step.at_ms, 0) / total}%`;
    item.append(element("span", step.step.replace("_", " ")), element("span", ms(step.at_ms)), bar);
    list.append(item);
  });
  byId("detail").replaceChildren(
    element("h3", `Request ${id}`), list, element("h4", "Routing receipt"),
    element("pre", receipt.ok ? await receipt.text() : "no receipt is kept any more", { tabindex: 0 }));
}

async function refresh() {
  if (document.hidden) return;
  try {
    const [text, health, requests, tenants] = await Promise.all([
      get("../metrics").then((answer) => answer.text()), fetch("../health", { headers: sessionStorage.getItem("key") ?
        { authorization: `Bearer ${sessionStorage.getItem("key")}` } : {} }).then((answer) => answer.json()),
      getJson("../requests"), getJson("../tenants")]);
    const metrics = parseMetrics(text);
    showFigures(metrics, performance.now());
    showWorkers(metrics, health);
    showQueue(metrics);
    showRequests(requests);
    const budgets = tenants.tenants.map((one) => [one.tenant, one.running,
      one.requests_per_minute ? number(one.requests_left, 1) : "no limit", one.tokens_per_minute ? number(one.tokens_left) : "no limit",
      one.tokens, one.refused]);
    if (changed("tenants", budgets)) fill("tenant-rows", budgets);
    if (!byId("config").textContent) byId("config").textContent = await (await get("../config")).text();
    byId("state").textContent = health.status + (health.message ? `: ${health.message}` : "");
  } catch (error) {
    byId("state").textContent = `no answer: ${error.message}`;
  }
}

byId("login").addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem("key", byId("key").value);
  byId("key").value = "";
  refresh();
});
byId("theme").addEventListener("click", () => {
  const dark = document.documentElement.dataset.theme ? document.documentElement.dataset.theme === "dark" :
    matchMedia("(prefers-color-scheme: dark)").matches;
  document.documentElement.dataset.theme = dark ? "light" : "dark";
});
document.addEventListener("visibilitychange", refresh);
setInterval(refresh, kEveryMs);
refresh();
