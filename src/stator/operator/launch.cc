// SPDX-License-Identifier: Apache-2.0
#include "stator/operator/launch.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <vector>

#include "stator/kube/object.h"
#include "stator/operator/gpu_memory.h"
#include "stator/operator/names.h"
#include "stator/operator/ssh_secret.h"
#include "stator/operator/type_defaults.h"

namespace stator::op {
namespace {

using json::Value;
using Words = std::vector<std::string>;

bool is_shell(const Value& container) {
  const Value* command = container.find("command");
  if (command == nullptr || command->size() < 2) {
    return false;
  }
  const std::string_view program = command->elements().front().text();
  const std::string_view last = command->elements().back().text();
  return (program.ends_with("sh")) && (last == "-c" || last == "-lc" || last == "-ec");
}

/// All words of the command line; of a shell's script its words, too.
Words words_of(const Value& container) {
  Words words;
  for (const std::string_view key : {"command", "args"}) {
    const Value* list = container.find(key);
    if (list == nullptr) {
      continue;
    }
    for (const Value& element : list->elements()) {
      std::string_view text = element.text();
      while (!text.empty()) {
        const size_t begin = text.find_first_not_of(" \t\n\\");
        if (begin == std::string_view::npos) {
          break;
        }
        text.remove_prefix(begin);
        const size_t end = std::min(text.find_first_of(" \t\n"), text.size());
        words.emplace_back(text.substr(0, end));
        text.remove_prefix(end);
      }
    }
  }
  return words;
}

/// The number behind a flag ("--tp 8", "--tp=8"), or 1.
int64_t flag_number(const Words& words, std::initializer_list<std::string_view> names) {
  for (size_t i = 0; i < words.size(); ++i) {
    for (const std::string_view name : names) {
      std::string_view value;
      if (words[i] == name && i + 1 < words.size()) {
        value = words[i + 1];
      } else if (words[i].starts_with(name) && words[i].size() > name.size() &&
                 words[i][name.size()] == '=') {
        value = std::string_view(words[i]).substr(name.size() + 1);
      }
      int64_t number = 0;
      const auto [end, failed] = std::from_chars(value.data(), value.data() + value.size(), number);
      if (!value.empty() && failed == std::errc() && end == value.data() + value.size()) {
        return number;
      }
    }
  }
  return 1;
}

bool has_word(const Words& words, std::string_view name) {
  return std::ranges::any_of(words, [&](const std::string& word) {
    return word == name ||
           (word.starts_with(name) && word.size() > name.size() && word[name.size()] == '=');
  });
}

std::string shell_variables(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const size_t begin = text.find("$(");
    const size_t end = begin == std::string_view::npos ? begin : text.find(')', begin);
    if (end == std::string_view::npos) {
      return out.append(text);
    }
    out.append(text.substr(0, begin)).append("${");
    out.append(text.substr(begin + 2, end - begin - 2)).append("}");
    text.remove_prefix(end + 1);
  }
  return out;
}

void append_to_script(Value& container, const std::string& flags) {
  Value* args = container.find("args");
  if (args == nullptr || args->size() == 0) {
    return;
  }
  Value& script = args->mutable_elements()->back();
  std::string text(script.text());
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ' || text.back() == '\\')) {
    text.pop_back();
  }
  script = text + " " + flags;
}

/// Adds flags to the engine's command line. `arithmetic`, if any, is a shell expression behind the
/// last flag: then a shell computes it and runs the user's words, which never become shell text.
void add_flags(Value& container, const Words& flags, const std::string& arithmetic) {
  std::string joined;
  for (const std::string& flag : flags) {
    joined += (joined.empty() ? "" : " ") + flag;
  }
  if (is_shell(container)) {
    const std::string end = arithmetic.empty() ? "" : fmt::format(" $(({}))", arithmetic);
    append_to_script(container, shell_variables(joined) + end);
    return;
  }
  if (arithmetic.empty()) {
    for (const std::string& flag : flags) {
      container["args"].push_back(flag);
    }
    return;
  }
  Value args = Value::array();
  args.push_back(fmt::format("exec \"$@\" {} $(({}))", flags.back(), arithmetic));
  args.push_back("engine");
  for (const std::string_view key : {"command", "args"}) {
    if (const Value* list = container.find(key)) {
      for (const Value& word : list->elements()) {
        args.push_back(word);
      }
    }
  }
  for (size_t i = 0; i + 1 < flags.size(); ++i) {
    args.push_back(flags[i]);
  }
  Value command = Value::array();
  command.push_back("sh");
  command.push_back("-c");
  container["command"] = std::move(command);
  container["args"] = std::move(args);
}

/// Runs `before` in a shell, then the engine's own words ("$@").
void wrap(Value& container, const std::string& script, bool runs_engine) {
  Value args = Value::array();
  if (is_shell(container) && runs_engine) {
    Value& own = container.find("args")->mutable_elements()->back();
    own = shell_variables(script) + " && " + std::string(own.text());
    return;
  }
  args.push_back(shell_variables(script) + (runs_engine ? " && exec \"$@\"" : ""));
  if (runs_engine) {
    args.push_back("engine");
    for (const std::string_view key : {"command", "args"}) {
      if (const Value* list = container.find(key)) {
        for (const Value& word : list->elements()) {
          args.push_back(word);
        }
      }
    }
  }
  Value command = Value::array();
  command.push_back("sh");
  command.push_back("-c");
  container["command"] = std::move(command);
  container["args"] = std::move(args);
}

std::string rank_of(const PodContext& context, const Meeting& meeting) {
  return context.role == Role::kLeader ? "0" : meeting.rank_variable;
}

void add_rank(const PodContext& context, Value& container, Words flags, std::string_view flag) {
  const Meeting meeting = meeting_of(context);
  const std::string rank = rank_of(context, meeting);
  flags.emplace_back(flag);
  if (!rank.empty()) {
    flags.push_back(rank);
    add_flags(container, flags, "");
  } else {
    add_flags(container, flags, meeting.rank_arithmetic);
  }
}

/// A worker waits until its leader's port takes connections: an engine that starts first would give
/// up. Bash's /dev/tcp and python3 are there in every engine's image.
void add_wait_for_leader(const PodContext& context, const Value& container, Value& pod_spec,
                         int port) {
  Value init = Value::object();
  init["name"] = "wait-for-leader-mp";
  init["image"] = container.text_at({"image"});
  Value command = Value::array();
  command.push_back("sh");
  command.push_back("-c");
  command.push_back(fmt::format(
      "until python3 -c 'import socket,sys; socket.create_connection((sys.argv[1],{0}),2)' "
      "\"{1}\" 2>/dev/null; do sleep 2; done",
      port, shell_variables(meeting_of(context).leader_host)));
  init["command"] = std::move(command);
  pod_spec["initContainers"].push_back(std::move(init));
}

/// By which address other engines fetch KV blocks from this one; with Ray it is the engine's own.
void tell_side_channel(std::string_view executor, Value& container) {
  if (executor == "ray") {
    return;
  }
  Value host = Value::array();
  host.push_back(env_field("VLLM_NIXL_SIDE_CHANNEL_HOST", "status.podIP"));
  container["env"] = merge_env(host, container["env"]);
}

void add_vllm(const PodContext& context, Value& container, Value& pod_spec) {
  const Words words = words_of(container);
  const int64_t gpus = std::max<int64_t>(context.component.gpus(), 1);
  const int64_t world = flag_number(words, {"--tensor-parallel-size", "-tp", "--tp"}) *
                        flag_number(words, {"--pipeline-parallel-size", "-pp", "--pp"});
  const int64_t replicas = flag_number(words, {"--data-parallel-size", "-dp"});
  const std::string leader = meeting_of(context).leader_host;
  const bool is_leader = context.role == Role::kLeader;
  const std::string nodes = std::to_string(context.component.nodes());
  std::string executor(context.component.annotation(kAnnotationVllmExecutor));
  if (executor.empty()) {
    executor = context.graph.annotation(kAnnotationVllmExecutor);
  }
  executor = lower(executor);
  tell_side_channel(executor, container);
  if (world > gpus && executor == "ray") {
    if (is_leader) {
      add_flags(container, {"--distributed-executor-backend", "ray"}, "");
      wrap(container, fmt::format("ray start --head --port={}", kPortRay), true);
    } else {
      wrap(container, fmt::format("exec ray start --address={}:{} --block", leader, kPortRay),
           false);
    }
  } else if (world > gpus) {
    Words flags = {"--distributed-executor-backend",
                   "mp",
                   "--nnodes",
                   nodes,
                   "--master-addr",
                   leader,
                   "--master-port",
                   std::to_string(kPortRendezvous)};
    if (!is_leader) {
      flags.insert(flags.begin(), "--headless");
      add_wait_for_leader(context, container, pod_spec, kPortRendezvous);
    }
    add_rank(context, container, std::move(flags), "--node-rank");
  } else if (has_word(words, "--enable-elastic-ep")) {
    if (is_leader) {
      wrap(container, fmt::format("ray start --head --port={}", kPortRay), true);
    } else {
      wrap(container,
           fmt::format("until python3 -c 'import urllib.request,sys; "
                       "urllib.request.urlopen(sys.argv[1])' \"http://{}:{}/live\" 2>/dev/null; do "
                       "sleep 2; done; exec ray start --address={}:{} --block",
                       leader, kPortSystem, leader, kPortRay),
           false);
    }
  } else if (world * replicas > gpus) {
    const int64_t local = std::max<int64_t>(gpus / std::max<int64_t>(world, 1), 1);
    Words flags = {"--data-parallel-size-local", std::to_string(local),
                   "--data-parallel-address",    leader,
                   "--data-parallel-rpc-port",   std::to_string(kPortDataParallelRpc)};
    if (!has_word(words, "--data-parallel-hybrid-lb")) {
      flags.insert(flags.begin(), "--data-parallel-hybrid-lb");
    }
    flags.emplace_back("--data-parallel-start-rank");
    const Meeting meeting = meeting_of(context);
    if (is_leader) {
      flags.emplace_back("0");
      add_flags(container, flags, "");
    } else {
      const std::string rank =
          meeting.rank_arithmetic.empty()
              ? meeting.rank_variable.substr(2, meeting.rank_variable.size() - 3)
              : "(" + meeting.rank_arithmetic + ")";
      add_flags(container, flags, fmt::format("{} * {}", rank, local));
    }
  }
}

/// The key by which the leader reaches its workers: one for each graph, see shared_objects.cc.
void mount_ssh_key(const PodContext& context, Value& container, Value& pod_spec) {
  Value volume = Value::object();
  volume["name"] = "mpi-ssh-secret";
  volume["secret"]["secretName"] = ssh_secret_name(context.graph.name());
  volume["secret"]["defaultMode"] = 0644;  // copied, and closed, by whoever runs the container
  pod_spec["volumes"].push_back(std::move(volume));
  Value mount = Value::object();
  mount["name"] = "mpi-ssh-secret";
  mount["mountPath"] = "/ssh-pk";
  mount["readOnly"] = true;
  container["volumeMounts"].push_back(std::move(mount));
}

void add_trtllm(const PodContext& context, Value& container, Value& pod_spec) {
  mount_ssh_key(context, container, pod_spec);
  const bool is_leader = context.role == Role::kLeader;
  const std::string ssh =
      "mkdir -p ~/.ssh /tmp/sshd && cp /ssh-pk/* ~/.ssh/ && chmod 600 ~/.ssh/* && "
      "ssh-keygen -q -t ed25519 -N '' -f /tmp/sshd/host_key";
  if (!is_leader) {
    wrap(container, ssh + " && exec /usr/sbin/sshd -D -p 2222 -h /tmp/sshd/host_key", false);
    return;
  }
  const int64_t gpus = std::max<int64_t>(context.component.gpus(), 1);
  const int64_t nodes = context.component.nodes();
  std::string hosts = shell_variables(meeting_of(context).leader_host);
  const bool is_lws = context.graph.provider() == Provider::kComponent;
  for (int64_t i = 1; i < nodes; ++i) {
    hosts += is_lws ? fmt::format(",${{LWS_LEADER_ADDRESS%%.*}}-{}.${{LWS_LEADER_ADDRESS#*.}}", i)
                    : fmt::format(
                          ",${{GROVE_PCSG_NAME}}-${{GROVE_PCSG_INDEX}}-{}-wkr-{}."
                          "${{GROVE_HEADLESS_SERVICE}}",
                          lower(context.component.name()), i - 1);
  }
  const std::string run = fmt::format(
      "mpirun --allow-run-as-root --oversubscribe -n {} -H {} --mca pml ob1 --mca plm_rsh_args "
      "\"-p 2222 -o StrictHostKeyChecking=no -i ~/.ssh/id_rsa\" -x PATH -x LD_LIBRARY_PATH "
      "trtllm-llmapi-launch \"$@\"",
      gpus * nodes, hosts);
  Value args = Value::array();
  args.push_back(ssh + " && exec " + run);
  args.push_back("engine");
  for (const std::string_view key : {"command", "args"}) {
    if (const Value* list = container.find(key)) {
      for (const Value& word : list->elements()) {
        args.push_back(word);
      }
    }
  }
  container["command"] = json::parse(R"(["sh","-c"])").value();
  container["args"] = std::move(args);
}

}  // namespace

Meeting meeting_of(const PodContext& context) {
  if (context.graph.provider() == Provider::kComponent) {
    return {.leader_host = "$(LWS_LEADER_ADDRESS)",
            .rank_variable = "$(LWS_WORKER_INDEX)",
            .rank_arithmetic = ""};
  }
  if (context.rank > 0 || read_gpu_memory(context.component).is_inter_pod) {
    // A clique for each node: its pods are the engine and its shadow, each with a leader.
    return {.leader_host = fmt::format("$(GROVE_PCSG_NAME)-$(GROVE_PCSG_INDEX)-{}-ldr-"
                                       "$(GROVE_PCLQ_POD_INDEX).$(GROVE_HEADLESS_SERVICE)",
                                       lower(context.component.name())),
            .rank_variable = "",
            .rank_arithmetic = std::to_string(context.rank)};
  }
  return {.leader_host = fmt::format(
              "$(GROVE_PCSG_NAME)-$(GROVE_PCSG_INDEX)-{}-ldr-0.$(GROVE_HEADLESS_SERVICE)",
              lower(context.component.name())),
          .rank_variable = "",
          .rank_arithmetic = "GROVE_PCLQ_POD_INDEX + 1"};
}

void add_multinode_launch(const PodContext& context, Value& container, Value& pod_spec) {
  if (context.role == Role::kMain) {
    return;
  }
  const std::string& backend = context.graph.backend();
  if (backend == "sglang") {
    const Meeting meeting = meeting_of(context);
    add_rank(context, container,
             {"--dist-init-addr", fmt::format("{}:{}", meeting.leader_host, kPortRendezvous),
              "--nnodes", std::to_string(context.component.nodes())},
             "--node-rank");
  } else if (backend == "vllm") {
    add_vllm(context, container, pod_spec);
  } else if (backend == "trtllm") {
    add_trtllm(context, container, pod_spec);
  }
}

}  // namespace stator::op
