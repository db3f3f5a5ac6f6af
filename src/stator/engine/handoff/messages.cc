// SPDX-License-Identifier: Apache-2.0
#include "stator/engine/handoff/messages.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <span>

#include "stator/json/value.h"
#include "stator/json/writer.h"
#include "stator/text/hex.h"

namespace stator::engine::handoff {
namespace {

constexpr uint64_t kVersion = 1;
constexpr size_t kMetadataMax = 16'384;
/// A prompt has fewer blocks than this; beyond, an invitation is nonsense.
constexpr uint64_t kBlocksMax = 1U << 24;

template <typename Bytes>
std::string to_hex(const Bytes& bytes) {
  std::string out;
  for (const auto byte : bytes) {
    out += fmt::format("{:02x}", static_cast<unsigned>(byte) & 0xFFU);
  }
  return out;
}

bool read_hex(std::string_view hex, std::span<std::byte> out) {
  if (hex.size() != out.size() * 2) {
    return false;
  }
  for (size_t i = 0; i < out.size(); ++i) {
    const uint32_t high = text::hex_value(hex[2 * i]);
    const uint32_t low = text::hex_value(hex[2 * i + 1]);
    if (high == text::kNoHexDigit || low == text::kNoHexDigit) {
      return false;
    }
    out[i] = static_cast<std::byte>(high * 16 + low);
  }
  return true;
}

/// Appends little-endian numbers and ranges of bytes.
class Packer {
 public:
  explicit Packer(std::string& out) : out_(out) {}
  template <typename Number>
  void number(Number value) {
    for (size_t i = 0; i < sizeof value; ++i) {
      out_.push_back(static_cast<char>(static_cast<uint64_t>(value) >> (8 * i)));
    }
  }
  void bytes(std::span<const std::byte> from) {
    out_.append(reinterpret_cast<const char*>(from.data()), from.size());
  }

 private:
  std::string& out_;
};

/// Reads them back; after the first that is not there nothing is.
class Unpacker {
 public:
  explicit Unpacker(std::string_view in) : in_(in) {}
  template <typename Number>
  Number number() {
    if (in_.size() < sizeof(Number)) {
      broken_ = true;
      return 0;
    }
    uint64_t value = 0;
    for (size_t i = 0; i < sizeof(Number); ++i) {
      value |= uint64_t{static_cast<uint8_t>(in_[i])} << (8 * i);
    }
    in_.remove_prefix(sizeof(Number));
    return static_cast<Number>(value);
  }
  void bytes(std::span<std::byte> out) {
    if (in_.size() < out.size()) {
      broken_ = true;
      return;
    }
    std::memcpy(out.data(), in_.data(), out.size());
    in_.remove_prefix(out.size());
  }
  std::string text(size_t count) {
    if (in_.size() < count) {
      broken_ = true;
      return {};
    }
    std::string out(in_.substr(0, count));
    in_.remove_prefix(count);
    return out;
  }
  bool whole() const { return !broken_ && in_.empty(); }

 private:
  std::string_view in_;
  bool broken_ = false;
};

}  // namespace

std::string_view describe(Verdict verdict) {
  constexpr std::array<std::string_view, kVerdicts> kNames = {
      "complete", "unknown", "second", "late", "epoch", "foreign", "cancelled", "closing"};
  return kNames[static_cast<size_t>(verdict)];
}

std::string encode(const Invitation& invitation) {
  std::string out;
  json::Writer(out)
      .begin_object()
      .key("version")
      .value(kVersion)
      .key("agent")
      .value(invitation.agent)
      .key("epoch")
      .value(invitation.epoch)
      .key("token")
      .value(to_hex(invitation.token))
      .key("namespace")
      .value(to_hex(invitation.space))
      .key("blocks")
      .value(invitation.blocks)
      .key("block_bytes")
      .value(invitation.block_bytes)
      .key("lease_ms")
      .value(invitation.lease_ms)
      .key("metadata")
      .value(to_hex(invitation.metadata))
      .end_object();
  return out;
}

Result<Invitation> decode_invitation(std::string_view payload) {
  const auto corrupt = [](std::string_view what) {
    return Error(Code::kCorrupt, fmt::format("a hand-off of ours has {}", what));
  };
  auto parsed = json::parse(payload, {.depth_max = 4, .values_max = 64});
  if (!parsed || !parsed->is_object()) {
    return corrupt("no JSON object");
  }
  const json::Value& in = *parsed;
  if (in.at("version").as_uint64() != kVersion) {
    return corrupt("an unknown version");
  }
  Invitation out;
  out.agent = in.text_at({"agent"});
  const auto epoch = in.at("epoch").as_uint64();
  const auto blocks = in.at("blocks").as_uint64();
  const auto block_bytes = in.at("block_bytes").as_uint64();
  const auto lease = in.at("lease_ms").as_uint64();
  const std::string_view metadata = in.text_at({"metadata"});
  if (out.agent.empty() || !epoch || !blocks || *blocks > kBlocksMax || !block_bytes || !lease ||
      *lease > std::numeric_limits<uint32_t>::max() || metadata.size() > 2 * kMetadataMax) {
    return corrupt("members missing or out of range");
  }
  out.epoch = *epoch;
  out.blocks = static_cast<uint32_t>(*blocks);
  out.block_bytes = *block_bytes;
  out.lease_ms = static_cast<uint32_t>(*lease);
  out.metadata.resize(metadata.size() / 2);
  if (!read_hex(in.text_at({"token"}), out.token) ||
      !read_hex(in.text_at({"namespace"}), out.space) ||
      !read_hex(metadata, std::as_writable_bytes(std::span(out.metadata)))) {
    return corrupt("digits that are not hexadecimal");
  }
  return out;
}

std::string encode(const Message& message) {
  std::string out;
  Packer pack(out);
  pack.number(static_cast<uint8_t>(message.kind));
  pack.number(message.id);
  switch (message.kind) {
    case Message::Kind::kClaim:
      pack.number(message.epoch);
      pack.bytes(message.token);
      pack.bytes(message.space);
      pack.number(static_cast<uint32_t>(message.text.size()));
      out += message.text;
      break;
    case Message::Kind::kReady:
      pack.number(message.base);
      pack.number(message.first);
      pack.number(static_cast<uint32_t>(message.ready.size()));
      for (const Ready& block : message.ready) {
        pack.number(block.slot);
        pack.number(block.crc);
        pack.bytes(block.check);
      }
      break;
    case Message::Kind::kGranted:
    case Message::Kind::kAlive:
      break;
    case Message::Kind::kFetched:
      pack.number(message.first);
      break;
    case Message::Kind::kRefused:
    case Message::Kind::kEnd:
      pack.number(message.first);
      pack.number(static_cast<uint8_t>(message.verdict));
      break;
  }
  return out;
}

Result<Message> decode_message(std::string_view bytes) {
  const Error corrupt(Code::kCorrupt, "a hand-off message that no agent of ours writes");
  Unpacker in(bytes);
  Message out;
  const auto kind = in.number<uint8_t>();
  out.kind = static_cast<Message::Kind>(kind);
  out.id = in.number<uint64_t>();
  switch (out.kind) {
    case Message::Kind::kClaim:
      out.epoch = in.number<uint64_t>();
      in.bytes(out.token);
      in.bytes(out.space);
      out.text = in.text(std::min<size_t>(in.number<uint32_t>(), kMetadataMax));
      break;
    case Message::Kind::kReady: {
      out.base = in.number<uint64_t>();
      out.first = in.number<uint32_t>();
      const auto count = in.number<uint32_t>();
      if (count > kReadyMax) {
        return corrupt.clone();
      }
      out.ready.resize(count);
      for (Ready& block : out.ready) {
        block.slot = in.number<uint32_t>();
        block.crc = in.number<uint32_t>();
        in.bytes(block.check);
      }
      break;
    }
    case Message::Kind::kGranted:
    case Message::Kind::kAlive:
      break;
    case Message::Kind::kFetched:
      out.first = in.number<uint32_t>();
      break;
    case Message::Kind::kRefused:
    case Message::Kind::kEnd: {
      out.first = in.number<uint32_t>();
      const auto verdict = in.number<uint8_t>();
      if (verdict >= kVerdicts) {
        return corrupt.clone();
      }
      out.verdict = static_cast<Verdict>(verdict);
      break;
    }
    default:
      return corrupt.clone();
  }
  if (!in.whole()) {
    return corrupt.clone();
  }
  return out;
}

}  // namespace stator::engine::handoff
