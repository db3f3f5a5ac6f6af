// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "stator/core/result.h"
#include "stator/json/value.h"

namespace stator::kube {

/// A program that knows how to log in: aws, gke-gcloud-auth-plugin, kubelogin and others.
struct ExecPlugin {
  std::vector<std::string> command;      ///< and its arguments; empty: there is none
  std::vector<std::string> environment;  ///< NAME=value
  std::string api_version;               ///< client.authentication.k8s.io/v1 or v1beta1
  std::string install_hint;              ///< what to do where it is not installed
  json::Value cluster;                   ///< what it is told of the cluster; null: nothing
};

/// How to reach an API server, as a kubeconfig or a pod's files say it. Secrets are never logged.
struct Access {
  std::string server;             ///< https://host:port
  std::string space = "default";  ///< of the context, or the pod
  bool insecure = false;          ///< any certificate of the server
  std::string ca_path = {};       ///< PEM, read again when it changes
  std::string ca = {};            ///< PEM
  std::string token = {};
  std::string token_path = {};  ///< read again once a minute and after a refusal
  std::string certificate_path = {};
  std::string key_path = {};
  std::string certificate = {};  ///< PEM
  std::string key = {};
  ExecPlugin exec = {};
};

/// The current context of a kubeconfig (or `context`). Relative paths are relative to its folder.
/// kInvalidArgument names what is missing; kUnsupported for auth-provider plug-ins, which kubectl
/// does not have any more either.
Result<Access> read_kubeconfig(const std::filesystem::path& path, std::string_view context = "");
/// The same of its text; `path` is where it stands.
Result<Access> parse_kubeconfig(std::string_view text, const std::filesystem::path& path,
                                std::string_view context = "");

/// What a pod has: KUBERNETES_SERVICE_HOST and _PORT, and the mounted service account.
/// kNotFound outside a cluster.
Result<Access> read_in_cluster(
    std::string_view host, std::string_view port,
    const std::filesystem::path& mount = "/var/run/secrets/kubernetes.io/serviceaccount");

}  // namespace stator::kube
