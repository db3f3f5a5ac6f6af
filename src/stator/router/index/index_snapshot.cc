// SPDX-License-Identifier: Apache-2.0
#include "stator/router/index/index_snapshot.h"

#include <fmt/format.h>

#include <utility>

#include "stator/core/hash.h"
#include "stator/router/index/byte_stream.h"

namespace stator::router {
namespace {

constexpr std::string_view kMagic = "StatorKV";
constexpr uint32_t kVersion = 1;
constexpr size_t kHeaderBytes = kMagic.size() + sizeof(uint32_t) + sizeof(uint64_t);
// Models of one process, for a reader of a damaged file.
constexpr uint32_t kModelsMax = 1U << 16;

Error corrupt(std::string_view what) {
  return {Code::kCorrupt, fmt::format("the index snapshot is damaged: {}", what)};
}

}  // namespace

std::string encode_snapshots(const std::vector<IndexSnapshot>& snapshots) {
  ByteWriter out;
  out.put_text(kMagic);
  out.put(kVersion);
  out.put(uint64_t{0});  // the length, below
  out.put(static_cast<uint32_t>(snapshots.size()));
  for (const IndexSnapshot& snapshot : snapshots) {
    out.put(static_cast<uint32_t>(snapshot.model.size()));
    out.put_text(snapshot.model);
    out.put(snapshot.block_size);
    out.put(uint64_t{snapshot.content.size()});
    out.put_text(snapshot.content);
  }
  out.set(kMagic.size() + sizeof(uint32_t), uint64_t{out.size() - kHeaderBytes});
  out.put(xxh3_64(out.view(), 0));
  return out.take();
}

Result<std::vector<IndexSnapshot>> decode_snapshots(std::string_view file) {
  ByteReader in(file);
  if (in.get_text(kMagic.size()) != kMagic) {
    return Error(Code::kInvalidArgument, "the file is no index snapshot of Stator");
  }
  if (const auto version = in.get<uint32_t>(); !in.failed() && version != kVersion) {
    return Error(Code::kUnsupported,
                 fmt::format("the index snapshot has version {}, this program reads version {}",
                             version, kVersion));
  }
  const auto length = in.get<uint64_t>();
  if (in.failed() || in.left() < sizeof(uint64_t) || in.left() - sizeof(uint64_t) < length) {
    return corrupt("it ends early");
  }
  if (in.left() - sizeof(uint64_t) > length) {
    return corrupt("something follows its end");
  }
  ByteReader trailer(file.substr(file.size() - sizeof(uint64_t)));
  if (trailer.get<uint64_t>() != xxh3_64(file.substr(0, file.size() - sizeof(uint64_t)), 0)) {
    return corrupt("its checksum does not fit");
  }
  const auto models = in.get<uint32_t>();
  if (models > kModelsMax) {
    return corrupt("it names too many models");
  }
  std::vector<IndexSnapshot> snapshots;
  for (uint32_t i = 0; i < models; ++i) {
    IndexSnapshot snapshot;
    snapshot.model = in.get_text(in.get<uint32_t>());
    snapshot.block_size = in.get<uint32_t>();
    snapshot.content = in.get_text(in.get<uint64_t>());
    if (in.failed()) {
      return corrupt("a model is longer than the file");
    }
    snapshots.push_back(std::move(snapshot));
  }
  if (in.left() != sizeof(uint64_t)) {
    return corrupt("something follows its last model");
  }
  return snapshots;
}

}  // namespace stator::router
