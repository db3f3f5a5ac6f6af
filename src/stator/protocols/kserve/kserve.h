// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "stator/protocols/protocol.h"

namespace stator::protocols::kserve {

// The Open Inference Protocol (KServe v2), as Triton serves language models: text or token ids in,
// text out. Its plain form is Triton's generate extension, a JSON object with text_input, which is
// the Protocol here; inference requests over HTTP (http_form.h) and gRPC (grpc_form.h) are turned
// into it and its answers back (infer.h). docs/reference/kserve.md lists the fields.

/// `/v2/models/{model}[/versions/{version}]/generate` and `…/generate_stream`.
extern const Protocol kProtocol;

/// Every model has one version.
inline constexpr std::string_view kModelVersion = "1";

enum class Verb : uint8_t { kMetadata, kReady, kConfig, kInfer, kGenerate, kGenerateStream };

struct ModelPath {
  std::string model;    ///< without %XX
  std::string version;  ///< empty: any
  Verb verb = Verb::kMetadata;
};
/// What a path below /v2/models/ asks of which model; nothing for other paths. Names of models may
/// have slashes.
std::optional<ModelPath> parse_model_path(std::string_view path);

/// Whether errors at this path have this protocol's shape.
bool is_kserve_path(std::string_view path);

/// {"error": "…"}
void append_error(std::string& out, const api::ErrorBody& body, const api::ErrorStyle& style);

}  // namespace stator::protocols::kserve
