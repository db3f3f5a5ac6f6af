// SPDX-License-Identifier: Apache-2.0
#include "stator/weights/peer_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "stator/core/assert.h"
#include "stator/core/crc32c.h"
#include "stator/json/value.h"
#include "stator/text/base64.h"

namespace stator::weights {
namespace {

constexpr std::string_view kStatuses[] = {"initializing", "ready", "stale"};
constexpr uint64_t kManifestMax = uint64_t{256} << 20;

json::Value range_json(const transfer::Desc& range) {
  json::Value out = json::Value::object();
  out["addr"] = range.addr;
  out["len"] = range.len;
  return out;
}

transfer::Desc range_of(const json::Value& in) {
  return {.addr = in.at("addr").as_uint64().value_or(0),
          .len = in.at("len").as_uint64().value_or(0)};
}

}  // namespace

std::string offer_name(std::string_view source_id, std::string_view worker) {
  return fmt::format("weights.{}.{}", source_id, worker);
}

std::string encode(const Offer& offer) {
  json::Value out = json::Value::object();
  out["source_id"] = offer.source_id;
  out["worker"] = offer.worker;
  out["rank"] = offer.rank;
  out["accelerator"] = offer.accelerator;
  out["status"] = kStatuses[static_cast<size_t>(offer.status)];
  out["unix_ms"] = offer.unix_ms;
  std::string metadata;
  text::append_base64(metadata, offer.metadata);
  out["metadata"] = std::move(metadata);
  out["arena"] = range_json(offer.arena);
  out["manifest"] = range_json(offer.manifest);
  out["manifest_crc32c"] = offer.manifest_crc;
  return json::to_text(out);
}

Result<Offer> decode_offer(std::string_view bytes) {
  STATOR_TRY(const json::Value in, json::parse(bytes), "reading an offer of weights");
  const auto status = std::ranges::find(kStatuses, in.text_at({"status"}));
  const auto metadata = text::decode_base64(in.text_at({"metadata"}));
  Offer out{
      .source_id = std::string(in.text_at({"source_id"})),
      .worker = std::string(in.text_at({"worker"})),
      .rank = static_cast<uint32_t>(in.at("rank").as_uint64().value_or(0)),
      .accelerator = std::string(in.text_at({"accelerator"})),
      .unix_ms = in.at("unix_ms").as_uint64().value_or(0),
      .metadata = metadata.value_or(std::string()),
      .arena = range_of(in.at("arena")),
      .manifest = range_of(in.at("manifest")),
      .manifest_crc = static_cast<uint32_t>(in.at("manifest_crc32c").as_uint64().value_or(0))};
  if (out.source_id.empty() || out.worker.empty() || !metadata || status == std::end(kStatuses) ||
      out.manifest.len > kManifestMax) {
    return Error(Code::kCorrupt, "this is no offer of weights");
  }
  out.status = static_cast<SourceStatus>(status - std::begin(kStatuses));
  return out;
}

Result<std::vector<Offer>> find_offers(transfer::MetadataPlace& place, const std::string& source_id,
                                       uint32_t rank, std::string_view accelerator, Clock& clock) {
  STATOR_TRY(const auto names, place.list(offer_name(source_id, "")));
  const auto now_ms = static_cast<uint64_t>(unix_seconds(clock.wall_now()) * 1000);
  const auto old_ms = static_cast<uint64_t>(
      std::chrono::duration_cast<std::chrono::milliseconds>(kStaleAfter).count());
  std::vector<Offer> out;
  for (const std::string& name : names) {
    const auto text = place.get(name);
    auto offer = text ? decode_offer(*text) : Result<Offer>(Error(Code::kNotFound, "gone"));
    if (offer && offer->source_id == source_id && offer->status == SourceStatus::kReady &&
        offer->rank == rank && offer->accelerator == accelerator &&
        offer->unix_ms + old_ms >= now_ms) {
      out.push_back(std::move(*offer));
    }
  }
  return out;
}

PeerSource::PeerSource(Options options, Clock& clock, Metrics& metrics)
    : options_(std::move(options)), clock_(clock), agent_(options_.name, {}, clock, metrics) {}

Result<std::unique_ptr<PeerSource>> PeerSource::create(Options options, uint64_t arena_bytes,
                                                       Clock& clock, Metrics& metrics) {
  auto made = std::unique_ptr<PeerSource>(new PeerSource(std::move(options), clock, metrics));
  for (const std::string& backend : made->options_.backends) {
    const transfer::Params params = backend == "tcp"
                                        ? transfer::Params{{"host", made->options_.listen_host}}
                                        : transfer::Params{};
    if (const auto outcome = made->agent_.create_backend(backend, params);
        outcome != transfer::Outcome::kSuccess) {
      return Error(Code::kUnavailable, fmt::format("the transfer backend {} does not start: {}",
                                                   backend, transfer::to_string(outcome)));
    }
  }
  made->arena_ = made->agent_.allocate(arena_bytes);
  if (made->arena_.size() != arena_bytes || arena_bytes == 0) {
    return Error(Code::kUnavailable, fmt::format("no memory for {} bytes of weights", arena_bytes));
  }
  // One registration for all of it.
  made->arena_range_ = {.addr = reinterpret_cast<uint64_t>(made->arena_.data()),
                        .len = arena_bytes};
  made->agent_.register_mem(transfer::MemType::kDram, {&made->arena_range_, 1});
  return made;
}

PeerSource::~PeerSource() {
  if (place_ != nullptr) {
    place_->erase(offer_name(offer_.source_id, offer_.worker))
        .ignore("an offer that is not renewed is stale soon");
  }
}

Status PeerSource::publish(transfer::MetadataPlace& place, const Manifest& manifest) {
  STATOR_ASSERT(
      manifest.arena_bytes == arena_.size() && manifest.chunk_crcs.size() == manifest.chunks(),
      "a manifest describes all of the arena");
  const std::string text = encode(manifest);
  const std::span<std::byte> memory = agent_.allocate(text.size());
  if (memory.size() != text.size()) {
    return Error(Code::kUnavailable, "no memory for a manifest");
  }
  std::memcpy(memory.data(), text.data(), text.size());
  const transfer::Desc range{.addr = reinterpret_cast<uint64_t>(memory.data()), .len = text.size()};
  agent_.register_mem(transfer::MemType::kDram, {&range, 1});
  offer_ = {.source_id = manifest.identity.id(),
            .worker = options_.name,
            .rank = options_.rank,
            .accelerator = options_.accelerator,
            .status = SourceStatus::kReady,
            .unix_ms = 0,
            .metadata = agent_.local_md(),
            .arena = arena_range_,
            .manifest = range,
            .manifest_crc = crc32c(std::as_bytes(std::span(text)))};
  place_ = &place;
  return renew();
}

Status PeerSource::renew() {
  offer_.unix_ms = static_cast<uint64_t>(unix_seconds(clock_.wall_now()) * 1000);
  return place_->put(offer_name(offer_.source_id, offer_.worker), encode(offer_));
}

}  // namespace stator::weights
