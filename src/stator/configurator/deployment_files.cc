// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "stator/configurator/output.h"

namespace stator::configurator {
namespace {

using perf::Backend;

enum class Role : uint8_t { kBoth, kPrefill, kDecode };

std::string_view word(Role role) {
  return role == Role::kPrefill ? "prefill" : role == Role::kDecode ? "decode" : "worker";
}

uint64_t length_max(const Goal& goal) {
  return static_cast<uint64_t>(goal.work.input_tokens + goal.work.output_tokens);
}

/// The arguments of one engine server, one per line.
std::vector<std::string> arguments(const Goal& goal, const EngineChoice& c, std::string_view model,
                                   Role role) {
  const perf::Parallelism& p = c.parallel;
  std::vector<std::string> out;
  const auto add = [&](std::string text) { out.push_back(std::move(text)); };
  switch (goal.engine.backend) {
    case Backend::kVllm:
      add(fmt::format("--tensor-parallel-size {}", p.tp));
      add(fmt::format("--pipeline-parallel-size {}", p.pp));
      if (p.dp > 1) {
        add(fmt::format("--data-parallel-size {}", p.dp));
      }
      if (p.moe_ep > 1) {
        add("--enable-expert-parallel");
      }
      add(fmt::format("--max-num-seqs {}", c.batch));
      add(fmt::format("--max-num-batched-tokens {}", static_cast<uint64_t>(c.tokens_per_pass)));
      add(fmt::format("--max-model-len {}", length_max(goal)));
      add("--gpu-memory-utilization 0.92");
      if (role != Role::kBoth) {
        add(R"(--kv-transfer-config '{"kv_connector":"NixlConnector","kv_role":"kv_both"}')");
      }
      break;
    case Backend::kSglang:
      add(fmt::format("--model-path {}", model));
      add(fmt::format("--tp-size {}", p.tp * p.dp));
      if (p.pp > 1) {
        add(fmt::format("--pp-size {}", p.pp));
      }
      if (p.dp > 1) {
        add(fmt::format("--dp-size {} --enable-dp-attention", p.dp));
      }
      if (p.moe_ep > 1) {
        add(fmt::format("--ep-size {}", p.moe_ep));
      }
      add(fmt::format("--max-running-requests {}", c.batch * p.dp));
      add(fmt::format("--chunked-prefill-size {}", static_cast<uint64_t>(c.tokens_per_pass)));
      add(fmt::format("--context-length {}", length_max(goal)));
      if (role != Role::kBoth) {
        add(fmt::format("--disaggregation-mode {}", word(role)));
      }
      break;
    case Backend::kTrtllm:
      add(fmt::format("--tp_size {}", p.tp * p.dp));
      add(fmt::format("--pp_size {}", p.pp));
      if (p.moe_ep > 1) {
        add(fmt::format("--ep_size {}", p.moe_ep));
      }
      add(fmt::format("--max_batch_size {}", c.batch));
      add(fmt::format("--max_num_tokens {}", static_cast<uint64_t>(c.tokens_per_pass)));
      add(fmt::format("--max_seq_len {}", length_max(goal)));
      add(fmt::format("--extra_llm_api_options engine_{}.yaml", word(role)));
      break;
  }
  return out;
}

std::string command(const Goal& goal, std::string_view model) {
  switch (goal.engine.backend) {
    case Backend::kSglang:
      return "python3 -m sglang.launch_server";
    case Backend::kTrtllm:
      return fmt::format("trtllm-serve {}", model);
    case Backend::kVllm:
      break;
  }
  return fmt::format("vllm serve {}", model);
}

std::string script(const Goal& goal, const EngineChoice& c, std::string_view model, Role role) {
  return fmt::format(
      "#!/bin/sh\n# One {} of {} GPUs; start {} in each replica.\nexec {} \\\n  {} \"$@\"\n",
      word(role), c.parallel.gpus(), c.workers, command(goal, model),
      fmt::join(arguments(goal, c, model, role), " \\\n  "));
}

std::string trtllm_options(const EngineChoice& c) {
  return fmt::format(
      "enable_attention_dp: {}\nmoe_tensor_parallel_size: {}\nkv_cache_config:\n  "
      "free_gpu_memory_fraction: 0.9\n  enable_block_reuse: true\nenable_chunked_prefill: true\n",
      c.parallel.dp > 1 ? "true" : "false", c.parallel.moe_tp);
}

std::string_view image(Backend backend) {
  return backend == Backend::kVllm     ? "vllm-runtime"
         : backend == Backend::kSglang ? "sglang-runtime"
                                       : "tensorrtllm-runtime";
}

std::string component(const Goal& goal, const Candidate& candidate, const EngineChoice& c,
                      std::string_view model, Role role) {
  const uint32_t node = goal.engine.system.gpus_per_node;
  const uint32_t gpus = c.parallel.gpus();
  std::string out = fmt::format(
      "    - name: {}\n      type: {}\n      replicas: {}\n      scalingAdapter: {{}}\n",
      word(role), word(role), c.workers * candidate.replicas);
  if (gpus > node) {
    out += fmt::format("      multinode:\n        nodeCount: {}\n", (gpus + node - 1) / node);
  }
  out += fmt::format(
      "      podTemplate:\n        spec:\n          containers:\n            - name: main\n        "
      "      image: "
      "nvcr.io/nvidia/ai-dynamo/{}:1.4.2\n              command: [\"/bin/sh\", \"-c\"]\n           "
      "   args:\n                - |\n                  "
      "exec {} \\\n                    {}\n              resources:\n                limits:\n     "
      "             "
      "nvidia.com/gpu: \"{}\"\n",
      image(goal.engine.backend), command(goal, model),
      fmt::join(arguments(goal, c, model, role), " \\\n                    "),
      std::min(gpus, node));
  return out;
}

std::string deployment(const Goal& goal, const Candidate& c, std::string_view model) {
  std::string out = fmt::format(
      "apiVersion: nvidia.com/v1beta1\nkind: DynamoGraphDeployment\nmetadata:\n  name: "
      "serve\nspec:\n  "
      "backendFramework: {}\n  components:\n    - name: frontend\n      type: frontend\n      "
      "replicas: 1\n      "
      "podTemplate:\n        spec:\n          containers:\n            - name: main\n              "
      "image: "
      "nvcr.io/nvidia/ai-dynamo/frontend:1.4.2\n",
      perf::name_of(goal.engine.backend));
  if (c.mode == Mode::kDisaggregated) {
    out += component(goal, c, c.prefill, model, Role::kPrefill);
    out += component(goal, c, c.decode, model, Role::kDecode);
  } else {
    out += component(goal, c, c.decode, model, Role::kBoth);
  }
  return out;
}

std::string settings(const Goal& goal, const Candidate& c, std::string_view model) {
  return fmt::format(
      "# {}: {} workers of {} GPUs{}\n# stator worker {} --config stator.yaml --url "
      "http://HOST:8000\nworker:\n  engine: {}\nrouter:\n  mode: kv\n",
      model, c.decode.workers * c.replicas, c.decode.parallel.gpus(),
      c.mode == Mode::kDisaggregated
          ? fmt::format(", behind {} for prompts of {} GPUs", c.prefill.workers * c.replicas,
                        c.prefill.parallel.gpus())
          : std::string(),
      model, perf::name_of(goal.engine.backend));
}

}  // namespace

std::vector<std::pair<std::string, std::string>> render_files(const Goal& goal,
                                                              const Candidate& candidate,
                                                              std::string_view model) {
  std::vector<std::pair<std::string, std::string>> files;
  const auto add = [&](const EngineChoice& choice, Role role) {
    files.emplace_back(fmt::format("engine_{}.sh", word(role)), script(goal, choice, model, role));
    if (goal.engine.backend == Backend::kTrtllm) {
      files.emplace_back(fmt::format("engine_{}.yaml", word(role)), trtllm_options(choice));
    }
  };
  if (candidate.mode == Mode::kDisaggregated) {
    add(candidate.prefill, Role::kPrefill);
    add(candidate.decode, Role::kDecode);
  } else {
    add(candidate.decode, Role::kBoth);
  }
  files.emplace_back("stator.yaml", settings(goal, candidate, model));
  files.emplace_back("deployment.yaml", deployment(goal, candidate, model));
  return files;
}

}  // namespace stator::configurator
