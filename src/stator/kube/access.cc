// SPDX-License-Identifier: Apache-2.0
#include "stator/kube/access.h"

#include <fmt/format.h>
#include <openssl/evp.h>

#include "stator/io/read_file.h"
#include "stator/kube/object.h"
#include "stator/kube/yaml.h"

namespace stator::kube {
namespace {

using json::Value;

Result<std::string> from_base64(std::string_view text, std::string_view what) {
  std::string packed;
  for (const char c : text) {
    if (c != '\n' && c != '\r' && c != ' ') {
      packed.push_back(c);
    }
  }
  std::string out(packed.size() / 4 * 3 + 3, '\0');
  const int size = EVP_DecodeBlock(reinterpret_cast<unsigned char*>(out.data()),
                                   reinterpret_cast<const unsigned char*>(packed.data()),
                                   static_cast<int>(packed.size()));
  if (size < 0) {
    return Error(Code::kInvalidArgument, fmt::format("{} is not base64", what));
  }
  size_t padding = 0;
  while (padding < 2 && packed.size() > padding && packed[packed.size() - 1 - padding] == '=') {
    ++padding;
  }
  out.resize(static_cast<size_t>(size) - padding);
  return out;
}

/// clusters, users and contexts are lists of {name, <kind>: {…}}.
Result<const Value*> find_entry(const Value& config, std::string_view list, std::string_view kind,
                                std::string_view name) {
  const Value* entry = find_named(config.find(list), name);
  const Value* inner = entry == nullptr ? nullptr : entry->find(kind);
  if (inner == nullptr) {
    return Error(Code::kInvalidArgument,
                 fmt::format("the kubeconfig has no {} named '{}'", kind, name));
  }
  return inner;
}

std::string path_in(const std::filesystem::path& folder, std::string_view path) {
  if (path.empty()) {
    return "";
  }
  const std::filesystem::path given(path);
  return given.is_absolute() ? given.string() : (folder / given).string();
}

Result<std::string> data_of(const Value& entry, std::string_view key) {
  const std::string_view text = entry.text_at({key});
  return text.empty() ? Result<std::string>(std::string()) : from_base64(text, key);
}

constexpr std::string_view kExecGroup = "client.authentication.k8s.io/";

Result<ExecPlugin> read_exec(const Value& exec, const Value& cluster,
                             const std::filesystem::path& folder) {
  ExecPlugin plugin;
  const std::string_view command = exec.text_at({"command"});
  plugin.api_version = exec.text_at({"apiVersion"});
  plugin.install_hint = exec.text_at({"installHint"});
  if (command.empty()) {
    return Error(Code::kInvalidArgument, "the kubeconfig's exec has no command");
  }
  if (plugin.api_version != "client.authentication.k8s.io/v1" &&
      plugin.api_version != "client.authentication.k8s.io/v1beta1") {
    return Error(Code::kInvalidArgument,
                 fmt::format("the kubeconfig's exec has apiVersion '{}': {}v1 and {}v1beta1 are "
                             "known",
                             plugin.api_version, kExecGroup, kExecGroup));
  }
  if (exec.text_at({"interactiveMode"}) == "Always") {
    return Error(Code::kUnsupported,
                 fmt::format("the kubeconfig's exec '{}' wants to ask questions (interactiveMode "
                             "Always): set IfAvailable or Never",
                             command));
  }
  const bool is_path = command.find('/') != std::string_view::npos;
  plugin.command.push_back(is_path ? path_in(folder, command) : std::string(command));
  for (const Value& word : exec.at("args").elements()) {
    plugin.command.emplace_back(word.text());
  }
  for (const Value& entry : exec.at("env").elements()) {
    plugin.environment.push_back(
        fmt::format("{}={}", entry.text_at({"name"}), entry.text_at({"value"})));
  }
  if (bool_at(exec, {"provideClusterInfo"}, false)) {
    plugin.cluster = Value::object();
    for (const std::string_view key :
         {"server", "certificate-authority-data", "insecure-skip-tls-verify", "tls-server-name"}) {
      if (const Value* value = cluster.find(key)) {
        plugin.cluster[key] = *value;
      }
    }
  }
  return plugin;
}

}  // namespace

Result<Access> read_kubeconfig(const std::filesystem::path& path, std::string_view context) {
  STATOR_TRY(const std::string text, io::read_file(path), "reading the kubeconfig");
  return parse_kubeconfig(text, path, context);
}

Result<Access> parse_kubeconfig(std::string_view text, const std::filesystem::path& path,
                                std::string_view context) {
  STATOR_TRY(const auto documents, parse_yaml(text, path.string()));
  if (documents.empty() || !documents.front().is_object()) {
    return Error(Code::kInvalidArgument, fmt::format("{} is no kubeconfig", path.string()));
  }
  const Value& config = documents.front();
  const std::string name(context.empty() ? config.text_at({"current-context"}) : context);
  STATOR_TRY(const Value* chosen, find_entry(config, "contexts", "context", name));
  STATOR_TRY(const Value* cluster,
             find_entry(config, "clusters", "cluster", chosen->text_at({"cluster"})));
  STATOR_TRY(const Value* user, find_entry(config, "users", "user", chosen->text_at({"user"})));
  if (user->find("auth-provider") != nullptr) {
    return Error(
        Code::kUnsupported,
        fmt::format("{}: user '{}' has an auth-provider, which is gone since Kubernetes 1.26: "
                    "write an exec plug-in, a token, a tokenFile or a client certificate into it",
                    path.string(), chosen->text_at({"user"})));
  }
  const std::filesystem::path folder = path.parent_path();
  Access access;
  if (const Value* exec = user->find("exec")) {
    STATOR_TRY(access.exec, read_exec(*exec, *cluster, folder), path.string());
  }
  access.server = cluster->text_at({"server"});
  if (access.server.empty()) {
    return Error(Code::kInvalidArgument,
                 fmt::format("{}: the cluster has no server", path.string()));
  }
  while (access.server.ends_with('/')) {
    access.server.pop_back();
  }
  if (const std::string_view space = chosen->text_at({"namespace"}); !space.empty()) {
    access.space = space;
  }
  access.insecure = bool_at(*cluster, {"insecure-skip-tls-verify"}, false);
  access.ca_path = path_in(folder, cluster->text_at({"certificate-authority"}));
  STATOR_TRY(access.ca, data_of(*cluster, "certificate-authority-data"));
  access.token = user->text_at({"token"});
  access.token_path = path_in(folder, user->text_at({"tokenFile"}));
  access.certificate_path = path_in(folder, user->text_at({"client-certificate"}));
  access.key_path = path_in(folder, user->text_at({"client-key"}));
  STATOR_TRY(access.certificate, data_of(*user, "client-certificate-data"));
  STATOR_TRY(access.key, data_of(*user, "client-key-data"));
  return access;
}

Result<Access> read_in_cluster(std::string_view host, std::string_view port,
                               const std::filesystem::path& mount) {
  if (host.empty() || port.empty()) {
    return Error(Code::kNotFound,
                 "not in a cluster (KUBERNETES_SERVICE_HOST is not set): name a --kubeconfig");
  }
  Access access;
  const bool is_v6 = host.find(':') != std::string_view::npos;
  access.server =
      is_v6 ? fmt::format("https://[{}]:{}", host, port) : fmt::format("https://{}:{}", host, port);
  access.ca_path = (mount / "ca.crt").string();
  access.token_path = (mount / "token").string();
  STATOR_TRY(const auto space, io::read_file_if_present(mount / "namespace"));
  if (space && !space->empty()) {
    access.space = *space;
  }
  return access;
}

}  // namespace stator::kube
