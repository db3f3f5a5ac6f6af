// SPDX-License-Identifier: Apache-2.0
#include "stator/cli/bench.h"
#include "stator/cli/command.h"
#include "stator/cli/deploy.h"
#include "stator/cli/planner_commands.h"
#include "stator/cli/sim_run.h"

namespace stator::cli {
namespace {

std::vector<CommandOption> serve_options() {
  std::vector<CommandOption> out = {
      {"--launch", "start the engine server: its command follows --", true}};
  const std::vector<CommandOption> scaled = app::scaled_serve_options();
  out.insert(out.end(), scaled.begin(), scaled.end());
  return out;
}

const std::vector<Command> kCommands = {
    {.name = "serve",
     .summary = "Serve a model from this process: frontend, router and workers in one",
     .description = "MODEL is a folder with a Hugging Face checkpoint, or ORG/NAME.\n"
                    "With --engine vllm, sglang, trtllm, llamacpp or openai the workers are the\n"
                    "servers at --url, and MODEL may be left out where they name their folder.\n\n"
                    "  stator serve models/demo\n"
                    "  stator serve models/demo --planner --ttft 500 --itl 50\n"
                    "  stator serve models/demo /models/qwen            # several models\n"
                    "  stator serve /models/qwen --engine vllm --url http://a:8000,http://b:8000\n"
                    "  curl localhost:8000/v1/models",
     .positional = "MODEL",
     .positional_repeated = true,
     .setting_prefixes =
         "http,kserve,access,admin,trace,request_log,frontend,responses,batches,media,router,"
         "worker,engine,kv,sim,"
         "sim_fault,system,hub,log,announce,discovery.namespace",
     .options = serve_options(),
     .takes_rest = true,
     .run = run_serve},
    {.name = "frontend",
     .summary = "HTTP front door and router; workers join through discovery",
     .description = "  stator frontend --port 8000 --discovery file:$HOME/.stator",
     .positional = "",
     .setting_prefixes =
         "http,kserve,access,admin,trace,request_log,frontend,responses,batches,media,router,"
         "discovery,events,rpc,"
         "hub,log,announce",
     .options = {},
     .run = run_frontend},
    {.name = "worker",
     .summary = "One engine that joins the frontends it finds through discovery",
     .description =
         "MODEL is a folder with a Hugging Face checkpoint, or ORG/NAME.\n"
         "The engine is part of this process (cpu, sim) or a server beside it, unmodified; with\n"
         "several URLs, one worker for each.\n\n"
         "  stator worker models/demo --engine cpu --discovery file:$HOME/.stator\n"
         "  stator worker /models/qwen --engine vllm --url http://127.0.0.1:8000 "
         "--discovery file:$HOME/.stator\n"
         "  stator worker /models/qwen --engine vllm --url http://127.0.0.1:8000 "
         "--discovery file:$HOME/.stator \\\n"
         "    --launch -- vllm serve /models/qwen --port 8000",
     .positional = "MODEL",
     .positional_repeated = true,
     .setting_prefixes =
         "worker,engine,kv,sim,sim_fault,discovery,events,rpc,system,trace,hub,log,announce",
     .options = {{"--launch", "start the engine server: its command follows --", true},
                 {"--exit-with-parent", "drain when the process that started this one ends", true}},
     .takes_rest = true,
     .run = run_worker},
    {.name = "router",
     .summary = "A part of the router as an HTTP service of its own, for other gateways",
     .description =
         "--indexer  who holds which KV blocks            (port 8090)\n"
         "--slots    how loaded every worker is           (port 8091)\n"
         "--select   chooses workers and books their load (port 8092)\n\n"
         "  stator router --indexer --workers 7=tcp://10.0.0.7:5557 --model-name m\n"
         "  stator router --select --router-index ttl\n"
         "  stator router --select --discovery file:$HOME/.stator   # and: stator frontend "
         "--router-url\n\n"
         "docs/reference/router_services.md lists the endpoints. There is no authentication.",
     .positional = "",
     .setting_prefixes = "router,discovery,events,rpc,log,announce",
     .options = {{"--service", "indexer, slots or select: the same as the switches"},
                 {"--indexer", "the index of KV blocks", true},
                 {"--slots", "the load of workers", true},
                 {"--select", "selection of workers", true},
                 {"--host", "address to listen on [127.0.0.1]"},
                 {"--port", "port, 0 = any free one [8090, 8091, 8092]"},
                 {"--threads", "event loops [4]"},
                 {"--workers", "--indexer: engines to follow, ID[:RANK]=tcp://HOST:PORT,…"},
                 {"--block-size", "tokens per KV block of --workers [16]"},
                 {"--model-name", "model of --workers [default]"},
                 {"--routing-group", "routing group of --workers [default]"},
                 {"--peers", "--indexer: URLs to fetch a first state from, in this order"},
                 {"--indexer-peers", "--select: the same, of indexers"},
                 {"--replica-sync-port",
                  "--slots, --select: publish bookings, on this gRPC port; 0 = any"},
                 {"--replica-sync-peers", "--slots, --select: others to ask, tcp://HOST:PORT,…"},
                 {"--selection-cache-ttl-secs",
                  "--select: how long a selection can be booked [120]"},
                 {"--selection-cache-max-entries", "--select: selections kept [4096]"},
                 {"--selection-cache-max-bytes", "--select: memory for them [268435456]"},
                 {"--access-log", "log every request", true},
                 {"--trace-id-header", "header that is logged and sent back [x-trace-id]"}},
     .run = run_router},
    {.name = "chat",
     .summary = "Talk to a running server from the terminal",
     .description =
         "  stator chat\n  echo 'What is a KV cache?' | stator chat --url http://host:8000",
     .positional = "",
     .setting_prefixes = "",
     .options = {{"--url", "server to talk to [http://127.0.0.1:8000]"},
                 {"--key", "file with an API key, for servers that want one"},
                 {"--model", "model to ask [the only one served]"},
                 {"--system", "system prompt"},
                 {"--temperature", "0 = always the likeliest answer [the model's default]"},
                 {"--max-tokens", "longest answer, in tokens"}},
     .run = run_chat},
    {.name = "bench",
     .summary = "Measure an OpenAI-compatible server: latencies, throughput, goodput, saturation",
     .description =
         "Marks the figures and exits 1 when the generator itself was the bottleneck.\n\n"
         "  stator bench --url http://host:8000 --concurrency 16 --requests 500\n"
         "  stator bench --url http://host:8000 --rate 5 --duration 60s --warmup auto --html "
         "r.html\n"
         "  stator bench --url http://host:8000 --rate 1 --duration 30s --sweep search --goodput "
         "ttft:500",
     .positional = "",
     .setting_prefixes = "",
     .options = bench_options(),
     .run = run_bench},
    {.name = "explain",
     .summary = "Show why a worker was chosen for a request",
     .description = "ID is a response id such as chatcmpl-…; default: the last request.\n\n"
                    "  stator explain last",
     .positional = "ID",
     .setting_prefixes = "",
     .options = {{"--url",
                  "server to ask [http://127.0.0.1:8000]; the operators' listener if it has one"},
                 {"--key", "file with an operator's API key"},
                 {"--json", "print the receipt as JSON", true}},
     .run = run_explain},
    {.name = "transfer-bench",
     .summary = "Measure how fast bytes move: shared memory, TCP, UCX, files, objects",
     .description =
         "Two agents in this process, or one and a file or bucket. Times in microseconds.\n\n"
         "  stator transfer-bench --backend shm --max-size 4MiB\n"
         "  stator transfer-bench --backend tcp --op read --batch 16 --json\n"
         "  stator transfer-bench --backend shm --scheme manytoone --agents 4 --processes\n"
         "  stator transfer-bench --backend posix --direct --batch 32 --depth 4 --mode repost\n"
         "  stator transfer-bench --backend obj --params "
         "bucket=b,endpoint_override=http://127.0.0.1:9000,access_key=K,secret_key=S",
     .positional = "",
     .setting_prefixes = "",
     .options = {{"--backend",
                  "shm, cma, tcp, ucx, posix, obj, or one of STATOR_TRANSFER_PLUGIN_DIR [shm]"},
                 {"--op", "read or write [write]"},
                 {"--scheme",
                  "pairwise: each initiator has a target; manytoone, onetomany; tp: each transfer "
                  "in equal parts over the pairs of two groups [pairwise]"},
                 {"--agents", "initiators, targets or pairs, as the scheme has many [1 pair, 2]"},
                 {"--processes", "memory: the targets are another process", true},
                 {"--min-size", "smallest block [4KiB]"},
                 {"--max-size", "largest block; sizes double [64MiB]"},
                 {"--batch", "blocks per transfer [1]"},
                 {"--iterations", "transfers per size, a sixteenth above 1 MiB [1000]"},
                 {"--warm-up", "transfers before [100]"},
                 {"--depth", "transfers under way at once on a link [1]"},
                 {"--threads", "of an agent, that move bytes [2]"},
                 {"--mode",
                  "recreate: lists and transfer are made anew each time; prepared: lists are kept; "
                  "repost: all is kept; reregister: memory is registered anew, too [recreate]"},
                 {"--random", "the other side's blocks in a random order", true},
                 {"--dir", "posix: where the file is made [/tmp]"},
                 {"--direct", "posix: past the page cache (O_DIRECT)", true},
                 {"--params", "of the backend: KEY=VALUE,…"},
                 {"--check", "compare the bytes afterwards", true},
                 {"--json", "for machines", true}},
     .run = run_transfer_bench},
    {.name = "store",
     .summary = "Cache of KV blocks that the engines of a host share",
     .description =
         "Workers use it with --kv-store HOST:PORT, vLLM and SGLang through stator_kv, LMCache "
         "with remote_url lm://HOST:PORT. Every block is checked when it comes "
         "and again by the engine that takes it. There is no authentication.\n\n"
         "  stator store --listen 127.0.0.1:8095 --host-bytes 4GiB --dir /var/lib/stator/store\n"
         "  stator serve models/demo --kv-store 127.0.0.1:8095\n"
         "  stator store --discovery file:$HOME/.stator   # and: worker … --kv-store discover",
     .positional = "",
     .setting_prefixes = "discovery,log,announce",
     .options = {{"--listen", "HOST:PORT, port 0 = any free one [127.0.0.1:8095]"},
                 {"--advertise", "HOST:PORT that discovery gives to engines [that of --listen]"},
                 {"--lmcache-listen", "HOST:PORT for LMCache's remote backend [none]"},
                 {"--host-bytes", "memory for blocks [1GiB]"},
                 {"--dir", "folder for blocks that outlive the process"},
                 {"--dir-bytes", "how much of it [10GiB]"}},
     .run = run_store},
    {.name = "kv",
     .summary = "Look into the KV tiers: what is there, is it whole, what is shared",
     .description =
         "WHAT is one of\n"
         "  ls      how full the tiers are; with --dir and --json every block\n"
         "  inspect the header of one --block: namespace, tokens, checksums, when it was written\n"
         "  verify  reads and checks every block on disk; exits 1 if one is damaged\n"
         "  top     prefixes with the most blocks behind them\n"
         "  export  writes all blocks into --file; import reads them into another folder\n"
         "  drop    forgets all blocks, or --block and what is behind it\n"
         "  hold    keeps memory for engines (--kv-kept), whose blocks outlive them there\n"
         "ls, inspect, verify, top and export may run beside an engine; import and drop may "
         "not.\n\n"
         "  stator kv ls --url http://127.0.0.1:8000\n"
         "  stator kv verify --dir /var/lib/stator/kv --json\n"
         "  stator kv inspect --dir /var/lib/stator/kv --block 0:VERxU9rw23S\n"
         "  stator kv hold --socket /run/stator/kv --bytes 8GiB",
     .positional = "WHAT",
     .setting_prefixes = "",
     .options =
         {{"--url", "server to ask [http://127.0.0.1:8000]; the operators' listener if it has one"},
          {"--key", "file with an operator's API key"},
          {"--dir", "folder of a disk tier (--kv-disk) to look into, without a server"},
          {"--file", "of export and import"},
          {"--bytes",
           "import: size of a new folder, such as 10GiB; hold: of all memory [three quarters "
           "of the machine's]"},
          {"--socket", "hold: path of the Unix socket, made with mode 0600"},
          {"--idle", "hold: ends after so long without an engine [never]"},
          {"--block", "drop, inspect: a block, as ls --json names it"},
          {"--json", "for machines", true}},
     .run = run_kv},
    {.name = "doctor",
     .summary = "Check this machine: cores, memory, limits, ports, libraries, engine servers",
     .description = "Exits 1 if something must be fixed.\n\n  stator doctor --port 8000\n"
                    "  stator doctor --engine vllm --url http://10.0.0.7:8100\n"
                    "  stator doctor --from-dynamo deploy.yaml",
     .positional = "",
     .setting_prefixes = "http,access,admin,worker.engine,engine.url,engine.api_key",
     .options = {{"--from-dynamo",
                  "say what becomes of Dynamo's variables in a file, or in this environment (env)"},
                 {"--json", "print the report as JSON", true}},
     .run = run_doctor},
    {.name = "key",
     .summary = "Make an API key, and the line that lets its holder in",
     .description =
         "ACTION is new. Prints the key, which is stored nowhere, and its line for --api-keys.\n"
         "Roles: user asks for text; service may also choose workers, priorities and tenants;\n"
         "operator may everything.\n\n"
         "  stator key new --tenant acme --file keys\n"
         "  stator key new --role operator --file keys\n"
         "  stator serve models/demo --api-keys keys",
     .positional = "ACTION",
     .setting_prefixes = "",
     .options = {{"--role", "user, service or operator [user]"},
                 {"--tenant", "whose budget and cache its requests use [default]"},
                 {"--file", "file to append the line to; made with mode 0600"},
                 {"--json", "print {\"key\":…,\"line\":…}", true}},
     .run = run_key},
    {.name = "top",
     .summary = "Watch a running server: fleet, workers, KV cache, queue, requests",
     .description = "Reads the operators' listener (--admin-port), or the only one there is.\n\n"
                    "  stator top --url http://127.0.0.1:9100\n"
                    "  stator top --once --json",
     .positional = "",
     .setting_prefixes = "",
     .options = {{"--url", "server to watch [http://127.0.0.1:8000]"},
                 {"--key", "file with an operator's API key"},
                 {"--interval", "time between two looks [2s]"},
                 {"--once", "print one look and end", true},
                 {"--json", "print one JSON object per look", true}},
     .run = run_top},
    {.name = "manual",
     .summary = "Print the manual page stator(1)",
     .description = "  stator manual | man -l -",
     .positional = "",
     .setting_prefixes = "",
     .options = {},
     .run = run_manual},
    {.name = "routes",
     .summary = "Print every route, its listener, and the roles that may use it",
     .description =
         "With --admin-port, routes of the listener admin are not on the public port.\n\n"
         "  stator routes --json",
     .positional = "",
     .setting_prefixes = "",
     .options = {{"--json", "print JSON", true}},
     .run = run_routes},
    {.name = "memory",
     .summary = "Own memory for engines: weights that outlive them, mapped in milliseconds",
     .description =
         "A writer allocates memory at the socket, fills it and commits; readers map it. When the\n"
         "writer crashes before that all is freed; what was committed stays for whoever comes "
         "next.\n\n"
         "  stator memory --socket /run/stator/memory --bytes 16GiB",
     .positional = "",
     .setting_prefixes = "log",
     .options = {{"--socket", "path of the Unix socket, made with mode 0600"},
                 {"--bytes", "of all memory [three quarters of the machine's]"}},
     .run = run_memory},
    {.name = "models",
     .summary =
         "Models in the Hugging Face cache: ls, pull, rm; from another host's memory: share, fetch",
     .description =
         "ACTION is one of:\n"
         "ls    what is cached, how large it is, whether it can be served (--json for machines)\n"
         "pull  download ORG/NAME, going on where an earlier try broke off\n"
         "rm    remove ORG/NAME with all its revisions\n"
         "share keep a FOLDER's files in memory and offer them at --place, until Ctrl-C\n"
         "fetch copy what is shared under NAME into a folder, checked; with --share offer it, "
         "too\n\n"
         "  stator models ls\n"
         "  stator models pull Qwen/Qwen3-0.6B\n"
         "  stator models rm Qwen/Qwen3-0.6B\n"
         "  stator models share models/demo --place file:///shared/sources\n"
         "  stator models fetch demo --place file:///shared/sources --into /var/lib/models/demo",
     .positional = "ACTION",
     .positional_repeated = true,
     .setting_prefixes = "hub,log",
     .options = {{"--json", "print JSON", true},
                 {"--place",
                  "share, fetch: where sources are found: file:///FOLDER, etcd://HOST:PORT"},
                 {"--model", "share: its name [the folder's]"},
                 {"--revision", "share, fetch: others are another model [none]"},
                 {"--into", "fetch: the folder to fill"},
                 {"--share", "fetch: offer it to others afterwards, until Ctrl-C", true},
                 {"--name", "share, fetch: of this process, unique [HOST-PID]"},
                 {"--listen-host", "share, fetch: address that others read from [127.0.0.1]"}},
     .run = run_models},
    {.name = "parse",
     .summary = "Split a model's output into text, reasoning and tool calls",
     .description =
         "Reads the output from standard input; prints its events as JSON lines and, last, the\n"
         "message.\n\n  stator parse --family hermes --reasoning qwen3 < output.txt\n"
         "  stator parse --list",
     .positional = "",
     .setting_prefixes = "",
     .options = {{"--family", "format of tool calls, or of reasoning alone; none = none [none]"},
                 {"--reasoning", "format of reasoning; none = none [none]"},
                 {"--tools", "file with the request's tools, a JSON array [any name]"},
                 {"--tool-choice", "auto, none, required or the name of a tool [auto]"},
                 {"--start-in-reasoning", "the prompt has opened the reasoning already", true},
                 {"--unknown-tools", "keep or drop calls of undeclared tools [keep]"},
                 {"--one-call", "as with parallel_tool_calls: false", true},
                 {"--finish", "how the stream ended: stop or length [stop]"},
                 {"--chunks", "feed the text in this many pieces [1]"},
                 {"--spec", "file with further families"},
                 {"--list", "print the families", true}},
     .run = run_parse},
    {.name = "passes",
     .summary = "Print what the engines of a fleet compute, one line per forward pass",
     .description = "Of workers that were started with --forward-passes and the same broker.\n\n"
                    "  stator passes --events nats://127.0.0.1:4222 --json",
     .positional = "",
     .setting_prefixes = "events.carrier,log",
     .options = {{"--json", "JSON lines with the field names of the wire", true},
                 {"--count", "end after so many [until interrupted]"}},
     .run = run_passes},
    {.name = "render",
     .summary = "Show the prompt that a chat template makes of a request",
     .description =
         "Reads the body of a chat request from standard input; prints the prompt, nothing else.\n"
         "FILE is a Jinja file, a tokenizer_config.json or chat_template.json, a model folder, or\n"
         "the name of a built-in format: deepseek_v3_2, deepseek_v4, harmony.\n\n"
         "  stator render --template models/demo < request.json",
     .positional = "",
     .setting_prefixes = "",
     .options = {{"--template", "FILE, folder or built-in format"},
                 {"--tokenizer-config", "file with the special tokens (bos_token …)"}},
     .run = run_render},
    {.name = "tokenize",
     .summary = "Show the token ids of texts, or the text of token ids",
     .description =
         "Reads one text from standard input, or one JSON string per line; prints {\"tokens\":[…]} "
         "for\n"
         "each. PATH is a model folder, a tokenizer.json, a tekken.json, a tiktoken or GGUF file "
         "or a\n"
         "SentencePiece model. BOS and EOS are added and special tokens in the text count as such\n"
         "unless --no-special is given.\n\n"
         "  printf 'Hello world' | stator tokenize --tokenizer models/demo\n"
         "  echo '[9906, 1917]' | stator tokenize --tokenizer models/demo --decode",
     .positional = "",
     .setting_prefixes = "",
     .options =
         {{"--tokenizer", "model folder or vocabulary file"},
          {"--jsonl", "every input line is a text, written as a JSON string", true},
          {"--no-special", "no BOS or EOS; special tokens in the text are plain text", true},
          {"--decode",
           "input lines are [ids] or {\"tokens\":[ids]}; prints {\"text\":…}, without special "
           "tokens if --no-special is given",
           true},
          {"--stream",
           "with --decode: prints {\"deltas\":[…]}, what each id adds to a stream, and what its "
           "end "
           "adds",
           true}},
     .run = run_tokenize},
    {.name = "operator",
     .summary = "Kubernetes: graphs of workers as custom resources",
     .description =
         "Without an action: keeps graphs in a cluster as they say (--kubeconfig, or in a pod).\n"
         "ACTION is one of:\n"
         "render   prints what the operator would make of manifests, without a cluster\n"
         "diff     prints what the operator would change in the cluster for manifests; "
         "status 1: something, 2: unknown\n"
         "convert  prints manifests in the other API version (--to)\n"
         "crds     prints the CustomResourceDefinitions\n\n"
         "  stator operator --kubeconfig ~/.kube/config --namespace llm\n"
         "  stator operator crds | kubectl apply --server-side -f -\n"
         "  stator operator diff graph.yaml --kubeconfig ~/.kube/config\n"
         "  stator operator convert graph.yaml --to v1beta1",
     .positional = "ACTION",
     .positional_repeated = true,
     .setting_prefixes = "",
     .options =
         {{"--kubeconfig", "file that says how to reach the cluster [the pod's own]"},
          {"--context", "context of the kubeconfig [its current one]"},
          {"--namespace",
           "only this namespace [all]; render: of manifests that name none [default]"},
          {"--lease-namespace", "namespace of the lease of the leader [--namespace]"},
          {"--lease-seconds", "a leader that is silent for so long is followed by another [15]"},
          {"--health-port", "port of /metrics, /healthz and /readyz, -1 = none [-1]"},
          {"--workload-provider",
           "component (Deployments, LeaderWorkerSets) or grove, where a graph does not say "
           "[component]"},
          {"--discovery-backend", "kubernetes or etcd [kubernetes]"},
          {"--ingress", "make an Ingress for each frontend", true},
          {"--ingress-host-suffix", "domain of the hosts of Ingresses [local]"},
          {"--gateway", "NAMESPACE/NAME of a Gateway: make HTTPRoutes, too"},
          {"--to", "convert: v1alpha1 or v1beta1 [v1beta1]"},
          {"--worker-token-file",
           "token of the workers' system ports, for loading adapters [none]"},
          {"--webhook-port", "port of the admission and conversion webhooks, -1 = none [-1]"},
          {"--webhook-service",
           "NAMESPACE/NAME by which the API server reaches the webhooks; crds: that converts"},
          {"--webhook-url", "https://HOST:PORT of the webhooks, outside the cluster"},
          {"--apply", "crds: write them to the cluster, instead of printing them", true},
          {"--gangs", "own: place PodCliqueSets; off: Grove's operator does [own]"},
          {"--shard", "I/N: of N operators, this one does its share of the namespaces [0/1]"},
          {"--json", "print JSON", true}},
     .run = run_operator},
    {.name = "deploy",
     .summary = "Kubernetes: deploy a model by what it should achieve",
     .description =
         "Searches the configuration that serves a model best on the cluster's GPUs within the "
         "given\n"
         "latencies, makes a DynamoGraphDeployment of it, applies it and waits until it is ready.\n"
         "--dry-run prints the manifest with the reasons, and what would change in the cluster.\n\n"
         "  stator deploy --model Qwen/Qwen3-32B --ttft 1000 --itl 25\n"
         "  stator deploy --model Qwen/Qwen3-32B --ttft 1000 --itl 25 --gpu h200_sxm --gpus 8 "
         "--dry-run",
     .positional = "",
     .positional_repeated = false,
     .setting_prefixes = "",
     .options = {{"--model", "its name as on the hub, or a folder with config.json"},
                 {"--ttft", "milliseconds until the first token, at most [2000]"},
                 {"--itl", "milliseconds for each further token, at most [30]"},
                 {"--isl", "tokens of a prompt [4000]"},
                 {"--osl", "tokens of an answer [1000]"},
                 {"--gpu", "kind of GPU, as h100_sxm [what the nodes' labels say]"},
                 {"--gpus", "how many of them [what the nodes have, at most 32]"},
                 {"--gpus-per-node", "of one node [what the nodes have]"},
                 {"--backend", "auto, vllm, sglang or trtllm [auto]"},
                 {"--model-cache", "claim that holds the model, mounted at /opt/model-cache"},
                 {"--name", "of the graph [the model's, with -dgd]"},
                 {"--namespace", "where to [the kubeconfig's]"},
                 {"--kubeconfig", "file that says how to reach the cluster [the pod's own]"},
                 {"--context", "context of the kubeconfig [its current one]"},
                 {"--wait", "seconds to wait until it is ready [600]"},
                 {"--dry-run", "change nothing: print the manifest", true},
                 {"--json", "print JSON: the reasons, the estimate, the manifest", true}},
     .run = run_deploy},
    {.name = "epp",
     .summary = "Endpoint picker for gateways: Envoy's external processing over the router",
     .description =
         "Serves envoy.service.ext_proc.v3 for the pods of an InferencePool, or for a file with "
         "one\n"
         "ip:port a line (read again when it changes). Gateways must send request bodies:\n"
         "FULL_DUPLEX_STREAMED or BUFFERED. With --model prompts are compared by their tokens,\n"
         "and with --kv-event-port by what the endpoints say they have cached. Requests that\n"
         "endpoints have from others count as load; where all endpoints are saturated, requests\n"
         "whose InferenceObjective has a negative priority are answered 429.\n\n"
         "  stator epp --pool-name llama --pool-namespace llm --kubeconfig ~/.kube/config\n"
         "  stator epp --endpoints endpoints.txt --model models/qwen3 --kv-event-port 5557\n"
         "  stator epp --endpoints endpoints.txt --grpc-port 9002",
     .positional = "",
     .setting_prefixes = "log,announce",
     .options = {{"--pool-name", "InferencePool to pick from"},
                 {"--pool-namespace", "its namespace [the context's]"},
                 {"--pool-group", "its API group [inference.networking.k8s.io]"},
                 {"--kubeconfig", "file that says how to reach the cluster [the pod's own]"},
                 {"--context", "context of the kubeconfig [its current one]"},
                 {"--endpoints", "file with endpoints, without a cluster"},
                 {"--model", "folder of the endpoints' model: count prompts in its tokens"},
                 {"--kv-block-size", "tokens of a block, as the endpoints have it [16]"},
                 {"--kv-event-port", "port of each endpoint's KV events (ZeroMQ), 0 = none [0]"},
                 {"--kv-replay-port", "port where missed events are asked for, 0 = none [0]"},
                 {"--refresh-metrics-interval",
                  "between two readings of each endpoint's metrics, as 500ms or 1s; 0 = never "
                  "[500ms]"},
                 {"--model-server-metrics-path", "where endpoints have their metrics [/metrics]"},
                 {"--model-server-metrics-port", "their port, 0 = the endpoint's own [0]"},
                 {"--queue-depth-threshold",
                  "requests that may wait at an endpoint before it counts as saturated [5]"},
                 {"--kv-cache-util-threshold",
                  "percent of its KV cache that may be in use before it does [80]"},
                 {"--kv-events", "follow the events that the endpoints file names", true},
                 {"--replica-port", "port by which other pickers hear of our choices [none]"},
                 {"--replica-host", "address by which they reach it [$POD_IP, or 127.0.0.1]"},
                 {"--replica-peers", "host:port, … of the other pickers"},
                 {"--replica-service",
                  "Service of the pickers of this pool, with a port named replica-agg"},
                 {"--host", "address to listen on [0.0.0.0]"},
                 {"--grpc-port", "port of external processing, 0 = any free one [9002]"},
                 {"--grpc-health-port", "port of gRPC health checks, -1 = none [9003]"},
                 {"--health-port", "port of /metrics, /healthz and /readyz, -1 = none [-1]"},
                 {"--config-file", "EndpointPickerConfig; plug-ins in it choose nothing here"},
                 {"--secure-serving",
                  "serve TLS with a certificate of its own making, which gateways accept", true},
                 {"--cert-path",
                  "folder with tls.crt and tls.key to serve TLS with, read again when "
                  "they change"},
                 {"--body-bytes-max", "largest request body [20971520]"},
                 {"--in-flight-max", "requests at once, beyond which 503 is answered, 0 = any [0]"},
                 {"--drain-seconds", "between SIGTERM and the end of taking requests [5]"},
                 {"--test-mode", "obey test-epp-endpoint-selection", true}},
     .run = run_epp},
    {.name = "config",
     .summary = "Print the effective settings as YAML, or their documentation",
     .description = "  stator config > stator.yaml\n  stator config --markdown",
     .positional = "",
     .setting_prefixes =
         "http,kserve,access,admin,trace,request_log,frontend,router,worker,engine,sim,"
         "discovery,events,rpc,"
         "system,hub,log,announce",
     .options = {{"--markdown", "the table of docs/configuration.md", true}},
     .run = run_config},
    {.name = "completion",
     .summary = "Print shell completions",
     .description = "SHELL is bash, zsh or fish.\n\n  stator completion bash > "
                    "/etc/bash_completion.d/stator",
     .positional = "SHELL",
     .positional_required = true,
     .setting_prefixes = "",
     .options = {},
     .run = run_completion},
    {.name = "index-bench",
     .summary = "Measure the router's index on a request trace",
     .description =
         "TRACE is JSON Lines with hash_ids of 512-token blocks. Request i is stored by worker i "
         "mod\n"
         "N as far as that worker does not hold it; then every request is looked up, third pass\n"
         "timed.\n\n  stator index-bench conversation_trace.jsonl --tokens-per-block 64",
     .positional = "TRACE",
     .positional_required = true,
     .setting_prefixes = "",
     .options = {{"--tokens-per-block", "block size of the engine: 512, 256, … [512]"},
                 {"--workers", "number of workers [16]"},
                 {"--index", "chain, ttl or radix [chain]"},
                 {"--opaque-names", "external block ids that differ from the sequence hashes",
                  true},
                 {"--json", "print one JSON object", true}},
     .run = run_index_bench},
    {.name = "index-trial",
     .summary = "Try the router's index on random events against a naive one",
     .description = "Stops at the first disagreement. A perfect link, one that loses, repeats and "
                    "reorders, and\n"
                    "an index with too little memory take turns.\n\n  stator index-trial "
                    "--operations 100000000",
     .positional = "",
     .setting_prefixes = "",
     .options = {{"--operations", "events and lookups [1000000]"},
                 {"--seed", "of the first round [1]"}},
     .run = run_index_trial},
    {.name = "sim",
     .summary = "Simulate a fleet on a request trace: latencies, throughput, cache hits",
     .description =
         "TRACE is JSON Lines with timestamp, input_length, output_length and hash_ids (the format "
         "of the\nMooncake traces), a trace of agents, requests captured by Dynamo, or the CSV of "
         "the Azure or BurstGPT\ntraces. The production router decides, on virtual time; engines "
         "follow the rules of a real one.\n\n"
         "  stator sim conversation_trace.jsonl --workers 8 --router kv --report-html report.html\n"
         "  stator sim --requests 5000 --rate 20 --turns 4 --workers 8 --sweep workers=4,8,16\n"
         "  stator sim conversation_trace.jsonl --workers 8 --compare router=round_robin,kv",
     .positional = "TRACE",
     .setting_prefixes = "",
     .options = sim_options(),
     .run = run_sim},
    {.name = "configure",
     .summary = "Find the configuration that serves a model best on given GPUs",
     .description = "MODEL of --model is a config.json, its folder, or a name of the catalogue. "
                    "Tries every way to\n"
                    "cut the model over the GPUs, batches, prefill and decode together and apart; "
                    "prints the best\n"
                    "that keep TTFT and ITL, or the closest ones and which limit binds. The word "
                    "estimate is for\n"
                    "tables: it fills ttft_ms and itl_ms in a table of deployments.\n\n"
                    "  stator configure --model Qwen/Qwen3-32B-FP8 --system h200_sxm --gpus 8 "
                    "--backend vllm \\\n"
                    "    --isl 4000 --osl 500 --ttft 600 --itl 15\n"
                    "  stator configure --model models/demo --system l40s --gpus 2 --trace "
                    "trace.jsonl --output deploy\n"
                    "  stator configure estimate --csv deployments.csv --json",
     .positional = "estimate",
     .setting_prefixes = "",
     .options = {{"--model", "config.json, folder with one, or a name such as Qwen/Qwen3-32B"},
                 {"--system", "h100_sxm, h200_sxm, b200_sxm, gb200, l40s, …"},
                 {"--gpus", "how many there are [8]"},
                 {"--backend", "vllm, sglang or trtllm [vllm]"},
                 {"--isl", "prompt tokens [4000, or the mean of --trace]"},
                 {"--osl", "answer tokens [1000, or the mean of --trace]"},
                 {"--prefix", "of the prompt, tokens found in the cache [0]"},
                 {"--ttft", "time to the first token at most, ms [1000]"},
                 {"--itl", "time per further token at most, ms [40]"},
                 {"--quantization",
                  "of weights: bfloat16, fp8, fp8_block, nvfp4, … [the checkpoint's]"},
                 {"--moe-quantization", "of experts [the same]"},
                 {"--kv-quantization", "of KV: bfloat16 or fp8 [trtllm with narrow weights: fp8]"},
                 {"--batch-max", "largest batch of one rank of attention [512]"},
                 {"--best", "how many to print [5]"},
                 {"--database",
                  "measured operators: AIConfigurator's folder, or a file of --database-file"},
                 {"--database-file", "write what was read of it as one file, which later runs map"},
                 {"--trace",
                  "request trace: its mean lengths are planned for, and the shortlist is "
                  "simulated on it"},
                 {"--output", "folder for engine flags, settings, deployment.yaml and a report"},
                 {"--html", "file for a page with the Pareto picture"},
                 {"--csv", "estimate: table of deployments, - = standard input"},
                 {"--parts", "estimate --json: what the times are made of", true},
                 {"--json", "print JSON", true}},
     .run = run_configure},
    {.name = "planner",
     .summary = "Decide how many workers a fleet should have: live, or what that would have saved",
     .description =
         "Looks at the metrics of frontends (or a Prometheus, or forward passes), decides, and has "
         "a\n"
         "connector do it; /planner shows what and why, / is a page. --dry-run replays a request "
         "trace\n"
         "on a simulated fleet whose size a policy decides, and prints missed goals, GPU-seconds "
         "and\n"
         "scaling events; --report-html draws it beside the reference's rules.\n"
         "Policies: mpc (simulates what each size would do), throughput (forecast of the next\n"
         "interval), load (up or down by one), reference (both, as NVIDIA Dynamo's), static:N.\n\n"
         "  stator planner --frontend http://a:8000 --ttft 500 --itl 30        # advises only\n"
         "  stator planner --prometheus http://prom:9090 --connector kubernetes --graph llama\n"
         "  stator planner --frontend http://a:8000 --connector process -- \\\n"
         "    stator worker models/demo --discovery file:$HOME/.stator\n"
         "  stator planner --dry-run conversation_trace.jsonl --start-up 60 --ttft 2000 --itl 25 "
         "\\\n"
         "    --policy mpc --report-json report.json --report-html report.html\n"
         "  stator planner --global --pool prod/llama=kubernetes --max-total-gpus 64",
     .positional = "",
     .setting_prefixes = "discovery,events,rpc,log,announce",
     .options = app::planner_options(),
     .takes_rest = true,
     .run = run_planner},
    {.name = "profile",
     .summary = "Measure an engine server: prompts and steps, for planner and simulator",
     .description =
         "Sweeps prompt lengths (one request at a time) and streams at once × contexts (prompts\n"
         "cached, so that steps only decode), fits both, and writes NPZ and JSON files as "
         "Dynamo's\n"
         "profiler does. Nobody else should use the server meanwhile.\n\n"
         "  stator profile --url http://127.0.0.1:8000 --output profiling_results\n"
         "  stator planner --frontend http://a:8000 --timing profile:profiling_results\n"
         "  stator sim trace.jsonl --sim-timing profile:profiling_results",
     .positional = "",
     .setting_prefixes = "log",
     .options = {{"--url", "of an OpenAI-compatible server"},
                 {"--model", "[the first it lists]"},
                 {"--api-key", "bearer token"},
                 {"--output", "folder for the results [profiling_results]"},
                 {"--max-context", "longest prompt and answer, tokens [as the server says]"},
                 {"--max-kv-tokens", "of its KV cache [as vLLM's metrics say, else 2000000]"},
                 {"--prefill-points", "prompt lengths [16]"},
                 {"--decode-points", "contexts, and streams at once of each [6]"},
                 {"--decode-tokens", "of each answer [500]"},
                 {"--concurrency-max", "streams at once [64]"},
                 {"--repeats", "of each prompt length; the median counts [3]"},
                 {"--vocabulary", "prompts are random ids from 10 to below this [1000]"},
                 {"--gpus", "of the engine [1]"},
                 {"--ttft", "goal, for the best prompt length it prints, ms [none]"},
                 {"--itl", "goal, for the best concurrency, ms [none]"},
                 {"--json", "print profile.json", true}},
     .run = run_profile},
    {.name = "forecast",
     .summary = "Forecast a series: what the planner expects of the load",
     .description =
         "Reads one value per line from standard input, or the last of several columns. Prints "
         "one\n"
         "value per step.\n\n"
         "  stator forecast --predictor kalman --steps 3 < series.csv\n"
         "  stator forecast --predictor seasonal --period 24 --steps 24 --json < series.csv",
     .positional = "",
     .setting_prefixes = "",
     .options = {{"--predictor",
                  "constant, kalman, arima, seasonal, or auto: what would have lost least [arima]"},
                 {"--steps", "how many values [1]"},
                 {"--log1p", "work on ln(1 + x)", true},
                 {"--q-level", "kalman: variance of the level per step [1]"},
                 {"--q-trend", "kalman: variance of the trend per step [0.1]"},
                 {"--r", "kalman: variance of an observation [10]"},
                 {"--min-points", "kalman: with fewer values the last one is the forecast [5]"},
                 {"--period", "seasonal: steps of a season [found by autocorrelation]"},
                 {"--window", "arima, seasonal: most recent values used [4096]"},
                 {"--json", "print one JSON object", true}},
     .run = run_forecast},
    {.name = "sim-server",
     .summary = "Pretend to be an inference engine: HTTP, metrics, KV events, faults on demand",
     .description =
         "Tokens come from a hash of all earlier ones. Faults: docs/reference/fake_engines.md.\n\n"
         "  stator sim-server --dialect vllm --model-dir models/demo --port 8100\n"
         "  curl localhost:8100/v1/completions -d '{\"prompt\":[5,6,7],\"max_tokens\":4}'\n"
         "  curl localhost:8100/fault -d '{\"kind\":\"close\",\"after_tokens\":2}'",
     .positional = "",
     .setting_prefixes = "http.host,http.port,engine,sim,log,announce",
     .options = {{"--dialect", "vllm, sglang, trtllm or llamacpp [vllm]"},
                 {"--model-dir", "folder with tokenizer and chat template [none: ids only]"},
                 {"--served-model-name", "name in answers [the folder as typed, else m]"},
                 {"--vocab-size", "of a server without --model-dir [32000]"},
                 {"--seed", "another seed is another model [0]"},
                 {"--speedup", "short for --sim-speedup"},
                 {"--release", "current, or old: names and forms before they changed [current]"},
                 {"--role", "aggregated, prefill or decode [aggregated]"},
                 {"--no-scale-out", "vllm: without /inference/v1", true},
                 {"--no-dev-mode", "vllm: without the admin routes", true},
                 {"--lora", "vllm, sglang: takes LoRA adapters, yes or no [vllm: yes]"},
                 {"--no-events", "no KV events over ZeroMQ", true},
                 {"--event-endpoint", "of rank 0; port 0 = any [tcp://127.0.0.1:0]"},
                 {"--event-replay-endpoint", "of rank 0, empty = none [tcp://127.0.0.1:0]"},
                 {"--event-topic", "first frame of every message [kv-events]"},
                 {"--event-form", "map or array [map; array with --release old]"},
                 {"--event-hash", "unsigned, signed or bytes [unsigned; sglang: signed]"},
                 {"--event-buffer-steps", "batches kept for replay [10000]"},
                 {"--incremental", "sglang: streams say only what is new", true},
                 {"--media", "takes image, audio, video (a list), or none [as the folder says]"},
                 {"--slots", "llamacpp: requests at once [4]"},
                 {"--bootstrap-port",
                  "sglang, --role prefill; the next port is used, too [0 = any]"},
                 {"--bootstrap-wait", "sglang: how long one leg waits for the other [300s]"},
                 {"--side-host", "address of the hand-off side channel [127.0.0.1]"},
                 {"--side-port", "its port [0 = any]"},
                 {"--handoff-lease", "how long a prefill server keeps blocks [30s]"},
                 {"--handoff-timeout", "until a dead side channel is an error [5s]"},
                 {"--requests-max", "open at once, beyond: 503 [65536]"},
                 {"--startup-delay", "answer 503 for this long [0s]"},
                 {"--fault", "one fault as JSON, or an array of them"}},
     .run = run_sim_server},
    {.name = "route-replay",
     .summary = "Route a recorded trace by other policies, with the router's own code",
     .description =
         "TRACE is JSON Lines: requests with timestamp, input_length, output_length and hash_ids "
         "of\n"
         "512-token blocks (Mooncake), or routing receipts (stator explain ID --json).\n\n"
         "Requests meet a fleet of equal workers that only take time: prompts one after another,\n"
         "answers side by side, caches that forget the least recently used. That is a simple "
         "clock,\n"
         "good for comparing policies; `stator sim` models engines. Receipts are decided again on "
         "what\n"
         "they saw: what a policy would have chosen there, one decision at a time.\n\n"
         "  stator route-replay conversation_trace.jsonl --policy kv --policy round_robin",
     .positional = "TRACE",
     .positional_required = true,
     .setting_prefixes = "router",
     .options = {{"--policy", "a mode of --router; may be repeated [kv, round_robin]", false, true},
                 {"--workers", "number of workers [8]"},
                 {"--tokens-per-block", "block size of the engines: 512, 256, … [512]"},
                 {"--kv-tokens", "room in a worker's cache, in tokens [2097152]"},
                 {"--prefill-us-per-token", "time of one uncached prompt token [100]"},
                 {"--itl-ms", "time between tokens of a lone request [10]"},
                 {"--speedup", "divides the time between arrivals [1]"},
                 {"--json", "print one JSON object", true}},
     .run = run_route_replay},
    {.name = "version",
     .summary = "Print the version",
     .description = "",
     .positional = "",
     .setting_prefixes = "",
     .options = {},
     .run = run_version},
};

}  // namespace

std::span<const Command> commands() {
  return kCommands;
}

}  // namespace stator::cli
