// SPDX-License-Identifier: Apache-2.0
// The operators' page: reads what the admin listener serves to operators (/metrics, /health, /requests, /receipts, /tenants, /config,
// /routing/preview) and shows it. No library, no request to anybody else.
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

async function get(path, more = {}) {
  const key = sessionStorage.getItem("key");
  const headers = { ...(key ? { authorization: `Bearer ${key}` } : {}), ...(more.body ? { "content-type": "application/json" } : {}) };
  const answer = await fetch(path, { ...more, headers, cache: "no-store" });
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

const kTierNames = { device: "device", host: "host memory", disk: "disk", external: "object store", object: "object store" };

function showTiers(metrics) {
  const here = metrics.stator_kv_tier_blocks || [];
  const known = [metrics.stator_router_index_blocks, metrics.stator_router_index_tier_blocks].map(sum);
  if (!changed("tiers", [metrics.stator_engine_kv_blocks_total, metrics.stator_engine_kv_blocks_used, metrics.stator_engine_kv_blocks_cached,
                         metrics.stator_engine_kv_host_blocks_stored, here, metrics.stator_kv_tier_bytes, known])) return;
  const rows = [];
  const add = (tier, where, used, total, bytes) => rows.push([kTierNames[tier] || tier, where,
    total ? meter(used, total, `KV blocks in ${kTierNames[tier] || tier}, ${where}`) : used, bytes ? `${number(bytes / 2 ** 20, 1)} MiB` : "–"]);
  if (metrics.stator_engine_kv_blocks_total) {
    add("device", "engines here", sum(metrics.stator_engine_kv_blocks_used) + sum(metrics.stator_engine_kv_blocks_cached),
        sum(metrics.stator_engine_kv_blocks_total));
    add("host", "engines here", sum(metrics.stator_engine_kv_host_blocks_stored), sum(metrics.stator_engine_kv_host_blocks_total));
  }
  for (const { labels, value } of here) {
    add(labels.tier, labels.engine || "engines here", value, find(metrics.stator_kv_tier_blocks_max, labels), find(metrics.stator_kv_tier_bytes, labels));
  }
  add("device", "all workers, as the router knows them", known[0]);
  add("below it", "all workers, as the router knows them", known[1]);
  fill("tier-rows", rows);
}

function showQueue(metrics) {
  const waiting = suffix(metrics, "_frontend_router_queue_pending_requests");
  const pending = Object.entries(metrics).filter(([name]) => name.includes("_router_queue_pending_"));
  if (!changed("queue", pending)) return;
  fill("queue-rows", waiting.map(({ labels, value }) => [
    labels.model, labels.worker_type, value, find(suffix(metrics, "_frontend_router_queue_pending_isl_tokens"), labels),
    find(suffix(metrics, "_frontend_router_queue_pending_cached_tokens"), labels)]));
}

function detailButton(one) {
  const button = element("button", one.request_id.slice(0, 8), { type: "button", "data-request": one.request_id,
    "aria-label": `Show request ${one.request_id}` });
  button.addEventListener("click", () => showDetail(one.request_id));
  return button;
}

/** Whoever looks at a row keeps it. */
function fillRequests(id, list, cells) {
  const focused = document.activeElement?.dataset?.request;
  fill(id, list.map((one) => [detailButton(one), ...cells(one)]));
  if (focused) document.querySelector(`[data-request="${CSS.escape(focused)}"]`)?.focus();
}

const kPhases = { hand_off: "hand-off" };

function showRunning(list) {
  if (!changed("running", list)) return;
  byId("running-none").hidden = list.length > 0;
  fillRequests("running-rows", list, (one) => [one.model, one.tenant || "–", kPhases[one.phase] || one.phase, one.worker_id || "–", one.prompt_tokens,
    one.cached_tokens, one.output_tokens, ms(one.ttft_ms), `${number(one.duration_ms / 1000, 1)} s`]);
}

function showRequests(list) {
  if (!changed("requests", list)) return;
  fillRequests("request-rows", list, (one) => {
    const status = one.error_type ? `${one.status} ${one.error_type}` : String(one.status);
    return [one.model, one.tenant || "–", one.error_type ? element("span", status, { class: "bad" }) : status, one.worker_id || "–",
            one.prompt_tokens, one.cached_tokens, one.output_tokens, ms(one.ttft_ms), ms(one.itl_ms), ms(one.duration_ms)];
  });
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

/** What is in the box, as a request's body. */
function previewBody() {
  const text = byId("preview-prompt").value;
  const model = byId("preview-model").value.trim();
  const named = model ? { model } : {};
  const start = text.trim()[0];
  if (start === "{") return { ...named, ...JSON.parse(text) };
  if (start === "[" && /^\s*\[[\d\s,]*\]\s*$/.test(text)) return { ...named, prompt: JSON.parse(text) };
  if (document.querySelector("[name=form]:checked").value === "text") return { ...named, prompt: text };
  return { ...named, messages: [{ role: "user", content: text }] };
}

async function preview() {
  const said = byId("preview-said");
  byId("preview-table").hidden = true;
  try {
    const tenant = byId("preview-tenant").value.trim();
    const answer = await get(`../routing/preview${tenant ? `?tenant=${encodeURIComponent(tenant)}` : ""}`, { method: "POST", body: JSON.stringify(previewBody()) });
    const receipt = await answer.json();
    if (!answer.ok) throw new Error(receipt.error?.message || receipt.message);
    const name = (one) => one.dp_rank ? `${one.worker_id} rank ${one.dp_rank}` : one.worker_id;
    said.textContent = `${receipt.prompt_tokens} tokens, ${receipt.prompt_blocks} full blocks: worker ${name(receipt.chosen)} (${receipt.reason}, mode ${receipt.mode})` +
      (receipt.prefill ? `; the prompt at worker ${name(receipt.prefill.chosen)} (${receipt.prefill.reason})` : "");
    fill("preview-rows", receipt.candidates.map((one) => [
      name(one), receipt.urls[one.worker_id] || "–",
      one.excluded ? element("span", one.excluded, { class: "bad" }) : name(one) === name(receipt.chosen) ? "chosen" : "possible", number(one.cost, 2),
      one.overlap_blocks, one.host_blocks ?? 0, one.disk_blocks ?? 0, one.active_prefill_tokens, one.active_blocks, one.active_requests]));
    byId("preview-table").hidden = false;
  } catch (error) {
    said.textContent = error.message;
  }
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
    showTiers(metrics);
    showQueue(metrics);
    showRunning(requests.filter((one) => one.running));
    showRequests(requests.filter((one) => !one.running));
    const models = [...new Set((health.instances || []).map((one) => one.model))];
    if (changed("models", models)) byId("models").replaceChildren(...models.map((value) => element("option", null, { value })));
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
byId("preview").addEventListener("submit", (event) => {
  event.preventDefault();
  preview();
});
byId("theme").addEventListener("click", () => {
  const dark = document.documentElement.dataset.theme ? document.documentElement.dataset.theme === "dark" :
    matchMedia("(prefers-color-scheme: dark)").matches;
  document.documentElement.dataset.theme = dark ? "light" : "dark";
});
document.addEventListener("visibilitychange", refresh);
setInterval(refresh, kEveryMs);
refresh();
