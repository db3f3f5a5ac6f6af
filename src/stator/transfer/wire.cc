// SPDX-License-Identifier: Apache-2.0
#include "stator/transfer/wire.h"

#include <cstring>

#include "stator/core/crc32c.h"
#include "stator/core/raw_bytes.h"

namespace stator::transfer {
namespace {

constexpr uint32_t kMagic = 0x31465853;  // "SXF1"
constexpr std::string_view kMetadataMagic = "SXM1";
constexpr std::string_view kPartialMagic = "SXP1";
constexpr size_t kTextMax = 4096;
constexpr size_t kConnectionMax = size_t{1} << 20;  // UCX tells its keys there
constexpr size_t kBackendsMax = 64;
constexpr size_t kRegionsMax = size_t{1} << 20;

/// Of the head with the field itself at zero.
uint16_t head_crc(std::span<const std::byte> head) {
  const std::array<std::byte, 2> none{};
  uint32_t crc = crc32c(head.first(6));
  crc = crc32c(none, crc);
  return static_cast<uint16_t>(crc32c(head.subspan(8), crc));
}

template <typename T>
void append(std::string& out, const T& value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof value);
}

void append_text(std::string& out, std::string_view text) {
  append(out, static_cast<uint32_t>(text.size()));
  out += text;
}

/// Takes values from the front; `good` falls at the first that is not there.
struct Reader {
  std::string_view rest;
  bool good = true;

  template <typename T>
  T take() {
    T value{};
    if (rest.size() < sizeof value) {
      good = false;
      return value;
    }
    std::memcpy(&value, rest.data(), sizeof value);
    rest.remove_prefix(sizeof value);
    return value;
  }
  std::string take_text(size_t most = kTextMax) {
    const auto size = take<uint32_t>();
    if (!good || size > most || size > rest.size()) {
      good = false;
      return {};
    }
    std::string text(rest.substr(0, size));
    rest.remove_prefix(size);
    return text;
  }
};

}  // namespace

std::string_view to_string(Outcome outcome) {
  switch (outcome) {
    case Outcome::kInProgress:
      return "IN_PROG";
    case Outcome::kSuccess:
      return "SUCCESS";
    case Outcome::kNotPosted:
      return "NOT_POSTED";
    case Outcome::kInvalidParam:
      return "INVALID_PARAM";
    case Outcome::kBackend:
      return "BACKEND";
    case Outcome::kNotFound:
      return "NOT_FOUND";
    case Outcome::kMismatch:
      return "MISMATCH";
    case Outcome::kNotAllowed:
      return "NOT_ALLOWED";
    case Outcome::kRepostActive:
      return "REPOST_ACTIVE";
    case Outcome::kUnknown:
      return "UNKNOWN";
    case Outcome::kNotSupported:
      return "NOT_SUPPORTED";
    case Outcome::kRemoteDisconnect:
      return "REMOTE_DISCONNECT";
    case Outcome::kCanceled:
      return "CANCELED";
    case Outcome::kNoTelemetry:
      return "NO_TELEMETRY";
  }
  return "UNKNOWN";
}

std::array<std::byte, Frame::kBytes> encode(const Frame& frame) {
  std::array<std::byte, Frame::kBytes> out{};
  put_raw(out, 0, kMagic);
  put_raw(out, 4, frame.type);
  put_raw(out, 5, frame.flags);
  put_raw(out, 8, frame.request);
  put_raw(out, 16, frame.segment);
  put_raw(out, 20, frame.segments);
  put_raw(out, 24, frame.key);
  put_raw(out, 40, frame.addr);
  put_raw(out, 48, frame.len);
  put_raw(out, 52, frame.payload_crc);
  put_raw(out, 56, frame.epoch);
  put_raw(out, 6, head_crc(out));
  return out;
}

std::optional<Frame> decode_frame(std::span<const std::byte> bytes) {
  if (bytes.size() != Frame::kBytes || get_raw<uint32_t>(bytes, 0) != kMagic ||
      get_raw<uint16_t>(bytes, 6) != head_crc(bytes)) {
    return std::nullopt;
  }
  const auto type = get_raw<uint8_t>(bytes, 4);
  Frame frame{.type = static_cast<Frame::Type>(type),
              .flags = get_raw<uint8_t>(bytes, 5),
              .request = get_raw<uint64_t>(bytes, 8),
              .segment = get_raw<uint32_t>(bytes, 16),
              .segments = get_raw<uint32_t>(bytes, 20),
              .key = get_raw<RemoteKey>(bytes, 24),
              .addr = get_raw<uint64_t>(bytes, 40),
              .len = get_raw<uint32_t>(bytes, 48),
              .payload_crc = get_raw<uint32_t>(bytes, 52),
              .epoch = get_raw<uint64_t>(bytes, 56)};
  if (type < 1 || type > 8 || frame.len > Frame::kSegmentMax) {
    return std::nullopt;
  }
  return frame;
}

std::string encode(const Metadata& metadata) {
  std::string out(metadata.partial ? kPartialMagic : kMetadataMagic);
  append(out, metadata.epoch);
  append_text(out, metadata.agent);
  append(out, static_cast<uint32_t>(metadata.backends.size()));
  for (const Metadata::Backend& backend : metadata.backends) {
    append_text(out, backend.type);
    append_text(out, backend.connection);
  }
  append(out, static_cast<uint32_t>(metadata.regions.size()));
  for (const Region& region : metadata.regions) {
    append(out, region.type);
    append(out, region.desc.addr);
    append(out, region.desc.len);
    append(out, region.desc.dev);
    append(out, region.key);
    append(out, region.shared_fd);
    append(out, region.shared_offset);
  }
  append(out, crc32c(std::as_bytes(std::span(out))));
  return out;
}

Result<Metadata> decode_metadata(std::string_view bytes) {
  const Error malformed(Code::kCorrupt, "this is no metadata of a transfer agent");
  const bool partial = bytes.starts_with(kPartialMagic);
  if (bytes.size() < kMetadataMagic.size() + 4 || !(partial || bytes.starts_with(kMetadataMagic))) {
    return malformed.clone();
  }
  const std::string_view body = bytes.substr(0, bytes.size() - 4);
  uint32_t crc = 0;
  std::memcpy(&crc, bytes.data() + body.size(), sizeof crc);
  if (crc != crc32c(std::as_bytes(std::span(body)))) {
    return malformed.clone();
  }
  Reader in{.rest = body.substr(kMetadataMagic.size())};
  Metadata out;
  out.partial = partial;
  out.epoch = in.take<uint64_t>();
  out.agent = in.take_text();
  const auto backends = in.take<uint32_t>();
  for (uint32_t i = 0; in.good && i < backends && backends <= kBackendsMax; ++i) {
    std::string type = in.take_text();
    out.backends.push_back({.type = std::move(type), .connection = in.take_text(kConnectionMax)});
  }
  const auto regions = in.take<uint32_t>();
  for (uint32_t i = 0; in.good && i < regions && regions <= kRegionsMax; ++i) {
    Region region;
    const auto type = in.take<uint8_t>();
    in.good = in.good && type < kMemTypes;
    region.type = static_cast<MemType>(type);
    region.desc.addr = in.take<uint64_t>();
    region.desc.len = in.take<uint64_t>();
    region.desc.dev = in.take<uint64_t>();
    region.key = in.take<RemoteKey>();
    region.shared_fd = in.take<int32_t>();
    region.shared_offset = in.take<uint64_t>();
    out.regions.push_back(region);
  }
  if (!in.good || !in.rest.empty() || backends > kBackendsMax || regions > kRegionsMax ||
      out.agent.empty()) {
    return malformed.clone();
  }
  return out;
}

}  // namespace stator::transfer
