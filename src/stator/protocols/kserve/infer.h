// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "stator/api/api_error.h"
#include "stator/core/ids.h"

namespace stator::protocols::kserve {

/// A tensor of a request. Its elements are in one of the two lists, by its type.
struct InputTensor {
  std::string name;
  std::string datatype;
  std::vector<int64_t> shape;
  std::vector<std::string> texts;  ///< of BYTES
  std::vector<int64_t> integers;   ///< of BOOL and whole numbers
};

struct RequestedOutput {
  std::string name;
  bool binary = false;
};

/// One inference request, however it came.
struct InferRequest {
  std::string model;
  std::string version;
  std::string id;
  std::vector<std::pair<std::string, std::string>> parameters;  ///< name → JSON
  std::vector<InputTensor> inputs;
  std::vector<RequestedOutput> outputs;  ///< empty: all
  bool binary_outputs = false;           ///< where `outputs` is empty
};

/// The same as a request of the generate extension.
struct GenerateCall {
  std::string model;
  std::string body;          ///< JSON
  bool stream = false;       ///< the client asks for pieces
  bool wants_final = false;  ///< an empty last answer that says so
};

/// kInvalidArgument for inputs, outputs, types and shapes that a language model does not have,
/// kNotFound for versions.
api::ApiResult<GenerateCall> to_generate(const InferRequest& request);

/// An answer of the generate extension, or one of its events.
struct GenerateAnswer {
  std::string model;
  std::string text;
  std::string finish_reason;  ///< empty: more follows
  std::optional<std::vector<TokenId>> ids;
  std::string error;  ///< not empty: instead of all that
};
/// kInternal if it is none.
Result<GenerateAnswer> read_answer(std::string_view json);

/// One tensor of an answer; elements as InputTensor.
struct OutputTensor {
  std::string_view name;
  std::string_view datatype;
  std::vector<std::string_view> texts;
  std::vector<TokenId> ids;
  bool binary = false;
};
/// Those that `request` wants. Views of `answer`.
std::vector<OutputTensor> make_outputs(const InferRequest& request, const GenerateAnswer& answer);

/// A tensor that a model takes or gives.
struct TensorFact {
  std::string_view name;
  std::string_view datatype;
  int64_t size = 1;  ///< −1: any
  bool optional = true;
};
/// What every language model takes and gives.
const std::vector<TensorFact>& input_facts();
const std::vector<TensorFact>& output_facts();

/// What metadata says of who serves.
inline constexpr std::string_view kPlatform = "stator";
inline constexpr std::string_view kServerVersion = "1";

}  // namespace stator::protocols::kserve
