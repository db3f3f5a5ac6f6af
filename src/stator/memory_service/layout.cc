// SPDX-License-Identifier: Apache-2.0
#include "stator/memory_service/layout.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "stator/core/hash.h"

namespace stator::memory_service {
namespace {

constexpr uint64_t kPage = 4096;

}  // namespace

Result<Allocation> Layout::allocate(uint64_t bytes, const std::string& tag) {
  if (bytes == 0 || bytes > bytes_max_ || tag.size() > kTextMax) {
    return Error(Code::kInvalidArgument,
                 fmt::format("{} bytes cannot be allocated: the service has {} (--bytes)", bytes,
                             bytes_max_));
  }
  const uint64_t whole = (bytes + kPage - 1) / kPage * kPage;
  if (bytes_ + whole > bytes_max_ || held_.size() >= kAllocationsMax) {
    return Error(Code::kOverloaded,
                 fmt::format("{} of {} bytes are allocated", bytes_, bytes_max_));
  }
  io::FileDescriptor memory(::memfd_create("stator-memory", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!memory.open() || ::ftruncate(memory.get(), static_cast<off_t>(whole)) != 0 ||
      ::fcntl(memory.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0) {
    return Error(Code::kOverloaded,
                 fmt::format("no memory of {} bytes: {}", whole, std::strerror(errno)));
  }
  Held held{.facts = {.id = ++last_id_,
                      .bytes = bytes,
                      .mapped_bytes = whole,
                      .tag = tag,
                      .slot = last_slot_++},
            .memory = std::move(memory)};
  bytes_ += whole;
  const Allocation facts = held.facts;
  held_.emplace(facts.id, std::move(held));
  return facts;
}

Status Layout::free(uint64_t id) {
  const auto found = held_.find(id);
  if (found == held_.end()) {
    return Error(Code::kNotFound, fmt::format("there is no allocation {}", id));
  }
  bytes_ -= found->second.facts.mapped_bytes;
  held_.erase(found);
  return {};
}

int Layout::descriptor(uint64_t id) const {
  const auto found = held_.find(id);
  return found == held_.end() ? -1 : found->second.memory.get();
}

std::vector<Allocation> Layout::list() const {
  std::vector<Allocation> out;
  for (const auto& [id, held] : held_) {
    out.push_back(held.facts);
  }
  return out;
}

Status Layout::put(const std::string& key, Place place) {
  if (key.empty() || key.size() > kTextMax || place.about.size() > kTextMax ||
      (places_.size() >= kPlacesMax && !places_.contains(key))) {
    return Error(Code::kInvalidArgument, "a key or its text is too long, or there are too many");
  }
  places_.insert_or_assign(key, std::move(place));
  return {};
}

std::optional<Place> Layout::get(const std::string& key) const {
  const auto found = places_.find(key);
  return found == places_.end() ? std::nullopt : std::optional(found->second);
}

bool Layout::erase(const std::string& key) {
  return places_.erase(key) > 0;
}

std::vector<std::string> Layout::keys() const {
  std::vector<std::string> out;
  for (const auto& [key, place] : places_) {
    out.push_back(key);
  }
  return out;
}

Status Layout::check() const {
  for (const auto& [key, place] : places_) {
    const auto found = held_.find(place.allocation);
    if (found == held_.end() || place.bytes > found->second.facts.bytes ||
        place.offset > found->second.facts.bytes - place.bytes) {
      return Error(Code::kInvalidArgument,
                   fmt::format("'{}' points at {} bytes at {} of allocation {}, which is not there "
                               "or shorter",
                               key, place.bytes, place.offset, place.allocation));
    }
  }
  return {};
}

uint64_t Layout::hash() const {
  std::string text;
  for (const auto& [id, held] : held_) {
    text += fmt::format("{} {} {} {}\n", held.facts.slot, id, held.facts.bytes, held.facts.tag);
  }
  for (const auto& [key, place] : places_) {
    text += fmt::format("{}\n{} {} {} {}\n", key, place.allocation, place.offset, place.bytes,
                        place.about);
  }
  return xxh3_64(std::as_bytes(std::span(text)));
}

void Layout::clear() {
  held_.clear();
  places_.clear();
  bytes_ = 0;
  last_slot_ = 0;
}

}  // namespace stator::memory_service
