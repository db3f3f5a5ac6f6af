// SPDX-License-Identifier: Apache-2.0
#include "stator/weights/manifest.h"

#include <fmt/format.h>
#include <openssl/evp.h>

#include <algorithm>
#include <array>

#include "stator/core/crc32c.h"
#include "stator/json/value.h"

namespace stator::weights {
namespace {

constexpr uint64_t kArenaMax = uint64_t{1} << 46;
constexpr uint64_t kChunkMin = 4096;
constexpr size_t kShapeMax = 16;

json::Value identity_json(const SourceIdentity& of) {
  json::Value out = json::Value::object();
  const auto text = [&](std::string_view key, const std::string& value) {
    if (!value.empty()) {
      out[key] = value;
    }
  };
  text("dtype", of.dtype);
  out["ep"] = of.ep;
  if (!of.extra.empty()) {
    json::Value extra = json::Value::object();
    for (const auto& [key, value] : of.extra) {
      extra[key] = value;
    }
    out["extra"] = std::move(extra);
  }
  out["format"] = of.format;
  text("framework", of.framework);
  text("framework_version", of.framework_version);
  text("kind", of.kind);
  text("model", of.model);
  out["pp"] = of.pp;
  text("quantisation", of.quantisation);
  text("revision", of.revision);
  out["tp"] = of.tp;
  return out;
}

SourceIdentity identity_of(const json::Value& in) {
  const auto number = [&](std::string_view key) {
    return static_cast<uint32_t>(
        std::min<uint64_t>(in.at(key).as_uint64().value_or(0), UINT32_MAX));
  };
  SourceIdentity out{.format = number("format"),
                     .kind = std::string(in.text_at({"kind"})),
                     .model = std::string(in.text_at({"model"})),
                     .revision = std::string(in.text_at({"revision"})),
                     .framework = std::string(in.text_at({"framework"})),
                     .framework_version = std::string(in.text_at({"framework_version"})),
                     .dtype = std::string(in.text_at({"dtype"})),
                     .quantisation = std::string(in.text_at({"quantisation"})),
                     .tp = number("tp"),
                     .pp = number("pp"),
                     .ep = number("ep"),
                     .extra = {}};
  for (const auto& member : in.at("extra").members()) {
    out.extra.emplace(member.key, std::string(member.value.text()));
  }
  return out;
}

Result<Piece> piece_of(const json::Value& in, uint64_t arena_bytes) {
  Piece out{.name = std::string(in.text_at({"name"})),
            .dtype = std::string(in.text_at({"dtype"})),
            .shape = {},
            .offset = in.at("offset").as_uint64().value_or(UINT64_MAX),
            .bytes = in.at("bytes").as_uint64().value_or(UINT64_MAX)};
  for (const json::Value& side : in.at("shape").elements()) {
    out.shape.push_back(side.as_uint64().value_or(0));
  }
  if (out.name.empty() || out.shape.size() > kShapeMax || out.bytes > arena_bytes ||
      out.offset > arena_bytes - out.bytes) {
    return Error(Code::kCorrupt,
                 fmt::format("a manifest's piece '{}' is outside its arena", out.name));
  }
  return out;
}

}  // namespace

std::string SourceIdentity::canonical() const {
  return json::to_text(identity_json(*this));
}

std::string SourceIdentity::id() const {
  const std::string text = canonical();
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned int size = 0;
  EVP_Digest(text.data(), text.size(), digest.data(), &size, EVP_sha256(), nullptr);
  std::string out;
  for (size_t i = 0; i < 8; ++i) {
    out += fmt::format("{:02x}", digest[i]);
  }
  return out;
}

void describe_chunks(Manifest& manifest, std::span<const std::byte> arena) {
  manifest.arena_bytes = arena.size();
  manifest.chunk_crcs.clear();
  for (size_t at = 0; at < arena.size(); at += manifest.chunk_bytes) {
    manifest.chunk_crcs.push_back(
        crc32c(arena.subspan(at, std::min<size_t>(manifest.chunk_bytes, arena.size() - at))));
  }
}

std::string encode(const Manifest& manifest) {
  json::Value out = json::Value::object();
  out["identity"] = identity_json(manifest.identity);
  out["arena_bytes"] = manifest.arena_bytes;
  out["chunk_bytes"] = manifest.chunk_bytes;
  json::Value crcs = json::Value::array();
  for (const uint32_t crc : manifest.chunk_crcs) {
    crcs.push_back(crc);
  }
  out["chunk_crc32c"] = std::move(crcs);
  json::Value pieces = json::Value::array();
  for (const Piece& piece : manifest.pieces) {
    json::Value one = json::Value::object();
    one["name"] = piece.name;
    one["dtype"] = piece.dtype;
    json::Value shape = json::Value::array();
    for (const uint64_t side : piece.shape) {
      shape.push_back(side);
    }
    one["shape"] = std::move(shape);
    one["offset"] = piece.offset;
    one["bytes"] = piece.bytes;
    pieces.push_back(std::move(one));
  }
  out["pieces"] = std::move(pieces);
  return json::to_text(out);
}

Result<Manifest> decode_manifest(std::string_view text) {
  STATOR_TRY(const json::Value in, json::parse(text), "reading a manifest of weights");
  Manifest out{.identity = identity_of(in.at("identity")),
               .pieces = {},
               .arena_bytes = in.at("arena_bytes").as_uint64().value_or(UINT64_MAX),
               .chunk_bytes = in.at("chunk_bytes").as_uint64().value_or(0),
               .chunk_crcs = {}};
  const auto& crcs = in.at("chunk_crc32c").elements();
  const auto& pieces = in.at("pieces").elements();
  if (out.arena_bytes > kArenaMax || out.chunk_bytes < kChunkMin || out.chunk_bytes > kArenaMax ||
      crcs.size() != out.chunks() || pieces.size() > Manifest::kPiecesMax) {
    return Error(Code::kCorrupt, "this is no manifest of weights: sizes and checksums disagree");
  }
  for (const json::Value& crc : crcs) {
    const auto value = crc.as_uint64();
    if (!value || *value > UINT32_MAX) {
      return Error(Code::kCorrupt, "a manifest's checksum is no 32-bit number");
    }
    out.chunk_crcs.push_back(static_cast<uint32_t>(*value));
  }
  for (const json::Value& piece : pieces) {
    STATOR_TRY(Piece one, piece_of(piece, out.arena_bytes));
    out.pieces.push_back(std::move(one));
  }
  return out;
}

Status check_same(const Manifest& wanted, const Manifest& offered) {
  if (wanted.identity != offered.identity) {
    return Error(Code::kInvalidArgument,
                 fmt::format("the source has other weights: {} instead of {}",
                             offered.identity.canonical(), wanted.identity.canonical()));
  }
  if (wanted.pieces.size() != offered.pieces.size() || wanted.arena_bytes != offered.arena_bytes) {
    return Error(Code::kInvalidArgument,
                 fmt::format("the source has {} pieces in {} bytes instead of {} in {}",
                             offered.pieces.size(), offered.arena_bytes, wanted.pieces.size(),
                             wanted.arena_bytes));
  }
  for (size_t i = 0; i < wanted.pieces.size(); ++i) {
    if (wanted.pieces[i] != offered.pieces[i]) {
      return Error(Code::kInvalidArgument,
                   fmt::format("the source's '{}' is not '{}' as it is here: name, dtype, shape, "
                               "size or place differ",
                               offered.pieces[i].name, wanted.pieces[i].name));
    }
  }
  return {};
}

}  // namespace stator::weights
