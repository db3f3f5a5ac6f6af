// SPDX-License-Identifier: Apache-2.0
// `stator models share` and `fetch`: a checkpoint's files from the memory of another process.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "stator/app/signals.h"
#include "stator/app/terminal.h"
#include "stator/cli/command.h"
#include "stator/core/clock.h"
#include "stator/core/log.h"
#include "stator/io/mapped_file.h"
#include "stator/io/replace_file.h"
#include "stator/weights/peer_source.h"
#include "stator/weights/pull.h"

namespace stator::cli {
namespace {

namespace fs = std::filesystem;
using weights::Manifest;
using weights::PeerSource;

constexpr uint64_t kAlignment = 4096;

weights::SourceIdentity identity_of(const Invocation& invocation, const std::string& model) {
  return {.kind = "files",
          .model = model,
          .revision = option_of(invocation, "--revision", ""),
          .extra = {}};
}

PeerSource::Options source_options(const Invocation& invocation) {
  std::string name = option_of(invocation, "--name", "");
  std::string host(256, '\0');
  if (name.empty() && ::gethostname(host.data(), host.size() - 1) == 0) {
    name = fmt::format("{}-{}", host.c_str(), ::getpid());
  }
  PeerSource::Options out{.name = std::move(name), .accelerator = {}};
  if (const std::string address = option_of(invocation, "--listen-host", ""); !address.empty()) {
    out.listen_host = address;
  }
  return out;
}

Result<std::unique_ptr<transfer::MetadataPlace>> open_place(const Invocation& invocation) {
  const std::string place = option_of(invocation, "--place", "");
  if (place.empty()) {
    return Error(Code::kInvalidArgument,
                 "--place says where sources are found: file:///FOLDER or etcd://HOST:PORT");
  }
  return transfer::open_metadata_place(place);
}

/// The folder's files, one behind the other.
Result<Manifest> lay_out(const std::string& folder, weights::SourceIdentity identity) {
  Manifest out{.identity = std::move(identity), .pieces = {}, .chunk_crcs = {}};
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    if (at->is_regular_file()) {
      out.pieces.push_back({.name = at->path().filename().string(),
                            .dtype = "file",
                            .shape = {},
                            .bytes = at->file_size()});
    }
  }
  if (error || out.pieces.empty()) {
    return Error(Code::kNotFound, fmt::format("{} has no files to share{}", folder,
                                              error ? ": " + error.message() : std::string()));
  }
  std::ranges::sort(out.pieces, {}, &weights::Piece::name);
  for (weights::Piece& piece : out.pieces) {
    piece.offset = out.arena_bytes;
    out.arena_bytes += (piece.bytes + kAlignment - 1) / kAlignment * kAlignment;
  }
  return out;
}

Status read_files(const std::string& folder, const Manifest& manifest, std::span<std::byte> arena) {
  for (const weights::Piece& piece : manifest.pieces) {
    if (piece.bytes == 0) {
      continue;
    }
    STATOR_TRY(const auto file, io::MappedFile::open((fs::path(folder) / piece.name).string()));
    if (file.bytes().size() != piece.bytes) {
      return Error(Code::kIo, fmt::format("{} changes while it is read", piece.name));
    }
    std::memcpy(arena.data() + piece.offset, file.bytes().data(), piece.bytes);
  }
  return {};
}

/// A name that is a file in the folder and nowhere else.
bool is_plain(const std::string& name) {
  return !name.empty() && name.size() <= 255 && name != "." && name != ".." &&
         !name.contains('/') && !name.contains('\0');
}

Status write_files(const std::string& folder, const Manifest& manifest,
                   std::span<const std::byte> arena) {
  std::error_code error;
  fs::create_directories(folder, error);
  for (const weights::Piece& piece : manifest.pieces) {
    if (!is_plain(piece.name)) {
      return Error(Code::kCorrupt, fmt::format("the source names a file '{}'", piece.name));
    }
    const auto* const begin = reinterpret_cast<const char*>(arena.data() + piece.offset);
    STATOR_CHECK(
        io::replace_file((fs::path(folder) / piece.name).string(), {begin, piece.bytes}, 0644));
  }
  return {};
}

Status share_until_signal(PeerSource& source, transfer::MetadataPlace& place,
                          const Manifest& manifest) {
  app::Signals signals;
  STATOR_CHECK(source.publish(place, manifest));
  log::info("weights", "ready",
            {{"source", manifest.identity.id()},
             {"model", manifest.identity.model},
             {"worker", source.agent().name()},
             {"bytes", manifest.arena_bytes}});
  while (!signals.wait_for(weights::kHeartbeat)) {
    if (const Status renewed = source.renew(); !renewed) {
      log::warn("weights", "the offer is not renewed; it is tried again",
                {{"reason", renewed.error().message()}});
    }
  }
  return {};
}

}  // namespace

Status share_model(const Invocation& invocation, const std::string& folder) {
  STATOR_TRY(const auto place, open_place(invocation));
  std::string model = option_of(invocation, "--model", "");
  if (model.empty()) {
    model = fs::path(folder).lexically_normal().filename().string();
  }
  STATOR_TRY(Manifest manifest, lay_out(folder, identity_of(invocation, model)));
  SystemClock clock;
  Metrics metrics;
  STATOR_TRY(const auto source,
             PeerSource::create(source_options(invocation), manifest.arena_bytes, clock, metrics));
  STATOR_CHECK(read_files(folder, manifest, source->arena()));
  weights::describe_chunks(manifest, source->arena());
  return share_until_signal(*source, *place, manifest);
}

Status fetch_model(const Invocation& invocation, const std::string& model) {
  STATOR_TRY(const auto place, open_place(invocation));
  const std::string into = option_of(invocation, "--into", "");
  if (into.empty()) {
    return Error(Code::kInvalidArgument, "stator models fetch needs --into FOLDER");
  }
  SystemClock clock;
  Metrics metrics;
  const Manifest wanted{.identity = identity_of(invocation, model), .pieces = {}, .chunk_crcs = {}};
  STATOR_TRY(auto offers, weights::find_offers(*place, wanted.identity.id(), 0, "", clock));
  if (offers.empty()) {
    return Error(Code::kNotFound,
                 fmt::format("nobody shares {} there (stator models share)", model));
  }
  const auto options = source_options(invocation);
  offers = weights::rendezvous(std::move(offers), options.name);
  STATOR_TRY(const auto target,
             PeerSource::create(options, offers.front().arena.len, clock, metrics));
  const TimePoint begin = clock.now();
  STATOR_TRY(const weights::Pulled pulled,
             weights::pull(target->agent(), target->arena(), wanted, offers));
  const double seconds = std::chrono::duration<double>(clock.now() - begin).count();
  STATOR_CHECK(write_files(into, pulled.manifest, target->arena()));
  print(fmt::format("{} files, {} bytes from {} in {:.2f} s into {}\n",
                    pulled.manifest.pieces.size(), pulled.bytes, pulled.sources.back(), seconds,
                    into));
  return invocation.options.contains("--share")
             ? share_until_signal(*target, *place, pulled.manifest)
             : Status();
}

}  // namespace stator::cli
