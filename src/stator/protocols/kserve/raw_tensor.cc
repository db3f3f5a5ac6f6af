// SPDX-License-Identifier: Apache-2.0
#include "stator/protocols/kserve/raw_tensor.h"

#include <fmt/format.h>

#include <cstring>

namespace stator::protocols::kserve {
namespace {

// More elements than any prompt has tokens.
constexpr int64_t kElementsMax = int64_t{1} << 28;

api::ApiError wrong(const InputTensor& tensor, std::string_view what) {
  return api::ApiError(
      Error(Code::kInvalidArgument, fmt::format("input '{}': {}", tensor.name, what)), tensor.name);
}

// Little endian, as every machine we run on.
template <typename Integer>
Integer load(std::string_view bytes) {
  Integer value{};
  std::memcpy(&value, bytes.data(), sizeof(value));
  return value;
}

template <typename Integer>
void append(std::string& out, Integer value) {
  char bytes[sizeof(value)];
  std::memcpy(bytes, &value, sizeof(value));
  out.append(bytes, sizeof(value));
}

template <typename Integer>
bool read_integers(InputTensor& tensor, std::string_view bytes, size_t count) {
  if (bytes.size() != count * sizeof(Integer)) {
    return false;
  }
  tensor.integers.reserve(count);
  for (size_t i = 0; i < count; ++i) {
    tensor.integers.push_back(load<Integer>(bytes.substr(i * sizeof(Integer))));
  }
  return true;
}

bool read_texts(InputTensor& tensor, std::string_view bytes, size_t count) {
  while (bytes.size() >= sizeof(uint32_t) && tensor.texts.size() < count) {
    const auto length = load<uint32_t>(bytes);
    bytes.remove_prefix(sizeof(uint32_t));
    if (length > bytes.size()) {
      return false;
    }
    tensor.texts.emplace_back(bytes.substr(0, length));
    bytes.remove_prefix(length);
  }
  return bytes.empty() && tensor.texts.size() == count;
}

}  // namespace

std::optional<size_t> element_count(const InputTensor& tensor) {
  int64_t count = 1;
  for (const int64_t size : tensor.shape) {
    if (size < 0 || size > kElementsMax || count > kElementsMax) {
      return std::nullopt;
    }
    count *= size;
  }
  return count > kElementsMax ? std::nullopt : std::optional<size_t>(static_cast<size_t>(count));
}

api::ApiStatus read_raw(InputTensor& tensor, std::string_view bytes) {
  const auto count = element_count(tensor);
  if (!count) {
    return wrong(tensor, "has an impossible shape");
  }
  bool fits = false;
  if (tensor.datatype == "BYTES") {
    fits = read_texts(tensor, bytes, *count);
  } else if (tensor.datatype == "BOOL") {
    fits = read_integers<uint8_t>(tensor, bytes, *count);
  } else if (tensor.datatype == "INT32") {
    fits = read_integers<int32_t>(tensor, bytes, *count);
  } else if (tensor.datatype == "INT64") {
    fits = read_integers<int64_t>(tensor, bytes, *count);
  } else {
    return wrong(tensor, fmt::format("{} is no type of any input here", tensor.datatype));
  }
  if (!fits) {
    return wrong(tensor, "its bytes do not fit its shape and type");
  }
  return {};
}

void append_raw(std::string& out, const OutputTensor& tensor) {
  for (const std::string_view text : tensor.texts) {
    append(out, static_cast<uint32_t>(text.size()));
    out += text;
  }
  for (const TokenId id : tensor.ids) {
    append(out, static_cast<int32_t>(id));
  }
}

}  // namespace stator::protocols::kserve
