// SPDX-License-Identifier: Apache-2.0
#include "stator/kv_events/object_store.h"

#include <fmt/format.h>
#include <openssl/evp.h>

#include <array>
#include <utility>

#include "stator/json/value.h"
#include "stator/text/base64.h"

namespace stator::kv_events {
namespace {

constexpr size_t kChunkBytes = size_t{128} << 10;  // what NATS's own clients use
constexpr std::string_view kDigestPrefix = "SHA-256=";
constexpr uint64_t kObjectBytesMax = uint64_t{4} << 30;

/// As NATS writes names and digests.
std::string base64url(std::string_view bytes) {
  return text::encode_base64url(bytes, text::Padding::kEquals);
}

std::string digest_of(std::string_view bytes) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned length = 0;
  EVP_Digest(bytes.data(), bytes.size(), digest.data(), &length, EVP_sha256(), nullptr);
  return std::string(kDigestPrefix) +
         base64url({reinterpret_cast<const char*>(digest.data()), length});
}

/// An object's description, as far as it is needed to read it.
struct Description {
  std::string nuid;
  uint64_t size = 0;
  uint64_t chunks = 0;
  std::string digest;
  bool deleted = false;
};

Result<Description> parse_description(std::string_view text) {
  const auto object = json::parse(text);
  if (!object || !object->is_object()) {
    return Error(Code::kCorrupt, "an object's description is no JSON object");
  }
  const auto text_of = [&](std::string_view key) {
    return std::string(object->at(key).as_string().value_or(""));
  };
  const auto number_of = [&](std::string_view key) -> uint64_t {
    return object->at(key).as_uint64().value_or(0);
  };
  Description out{.nuid = text_of("nuid"),
                  .size = number_of("size"),
                  .chunks = number_of("chunks"),
                  .digest = text_of("digest"),
                  .deleted = object->at("deleted").as_bool().value_or(false)};
  if (!out.deleted && (out.nuid.empty() || out.size > kObjectBytesMax)) {
    return Error(Code::kCorrupt, "an object's description lacks its nuid, or its size is absurd");
  }
  return out;
}

}  // namespace

std::string ObjectStore::meta_subject(const std::string& name) const {
  return fmt::format("$O.{}.M.{}", bucket_, base64url(name));
}

std::string ObjectStore::chunk_subject(const std::string& nuid) const {
  return fmt::format("$O.{}.C.{}", bucket_, nuid);
}

Status ObjectStore::ensure() {
  return jet_stream_.ensure_stream(
      {.name = stream(),
       .subjects = {fmt::format("$O.{}.C.>", bucket_), fmt::format("$O.{}.M.>", bucket_)},
       .bytes_max = bytes_max_,
       .refuse_new = true,
       .rollup = true});
}

Status ObjectStore::remove() {
  return jet_stream_.delete_stream(stream());
}

Result<std::optional<ObjectStore::Object>> ObjectStore::get(const std::string& name) {
  auto found = jet_stream_.newest(stream(), meta_subject(name));
  if (!found && found.error().code() == Code::kNotFound) {
    return std::optional<Object>();
  }
  STATOR_TRY(const std::optional<StoredMessage> meta, std::move(found));
  if (!meta) {
    return std::optional<Object>();
  }
  STATOR_TRY(const Description description, parse_description(meta->payload));
  if (description.deleted) {
    return std::optional<Object>();
  }
  Object object{.bytes = {}, .revision = meta->sequence};
  object.bytes.reserve(description.size);
  if (description.chunks > 0) {
    const std::string subject = chunk_subject(description.nuid);
    STATOR_TRY(const std::optional<StoredMessage> last, jet_stream_.newest(stream(), subject));
    if (!last) {
      return Error(Code::kCorrupt, fmt::format("object '{}' has no chunks", name));
    }
    STATOR_CHECK(jet_stream_.read(
        {.stream = stream(), .subject = subject, .from = 1, .to = last->sequence},
        [&](uint64_t, std::string_view chunk) -> Status {
          if (object.bytes.size() + chunk.size() > description.size) {
            return Error(Code::kCorrupt, fmt::format("object '{}' is longer than it says", name));
          }
          object.bytes += chunk;
          return {};
        }));
  }
  if (object.bytes.size() != description.size || digest_of(object.bytes) != description.digest) {
    return Error(Code::kCorrupt, fmt::format("object '{}' does not match its digest", name));
  }
  return std::optional(std::move(object));
}

Status ObjectStore::put(const std::string& name, std::string_view bytes, uint64_t revision) {
  std::optional<Description> before;
  if (revision != 0) {
    STATOR_TRY(const auto meta, jet_stream_.newest(stream(), meta_subject(name)));
    if (meta && meta->sequence == revision) {
      auto parsed = parse_description(meta->payload);
      before = parsed ? std::optional(std::move(*parsed)) : std::nullopt;
    }
  }
  const std::string nuid = jet_stream_.make_id();
  const std::string chunks = chunk_subject(nuid);
  uint64_t count = 0;
  Status written;
  for (size_t at = 0; written && at < bytes.size(); at += kChunkBytes, ++count) {
    auto stored =
        jet_stream_.publish({.subject = chunks, .payload = bytes.substr(at, kChunkBytes)});
    written = stored ? Status() : Status(std::move(stored.error()));
  }
  if (written) {
    const std::string meta = json::to_text(json::Value::object(
        {{"name", name},
         {"options", json::Value::object({{"max_chunk_size", kChunkBytes}})},
         {"bucket", bucket_},
         {"nuid", nuid},
         {"size", bytes.size()},
         {"mtime", "0001-01-01T00:00:00Z"},  // readers take the message's own time
         {"chunks", count},
         {"digest", digest_of(bytes)}}));
    auto stored = jet_stream_.publish(
        {.subject = meta_subject(name), .payload = meta, .replaces = revision, .rollup = true});
    written = stored ? Status() : Status(std::move(stored.error()));
  }
  // Whichever of the two nobody can find any more.
  const std::string unused = written ? (before ? before->nuid : std::string()) : nuid;
  if (!unused.empty()) {
    jet_stream_.purge_subject(stream(), chunk_subject(unused))
        .ignore("chunks nobody names cost room only");
  }
  return written;
}

}  // namespace stator::kv_events
