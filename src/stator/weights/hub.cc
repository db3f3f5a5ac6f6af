// SPDX-License-Identifier: Apache-2.0
#include "stator/weights/hub.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <system_error>
#include <vector>

#include "stator/core/log.h"
#include "stator/json/value.h"
#include "stator/net/http_client.h"
#include "stator/net/loopback.h"
#include "stator/weights/hub_cache.h"

namespace stator::weights {
namespace {

namespace fs = std::filesystem;
constexpr int kAttemptsMax = 5;  // of one file; each resumes where the last one broke off

/// A partial file that only one process writes to.
class PartialFile {
 public:
  explicit PartialFile(const fs::path& path)
      : descriptor_(::open(path.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0644)) {
    if (descriptor_ >= 0) {
      ::flock(descriptor_, LOCK_EX);
    }
  }
  PartialFile(const PartialFile&) = delete;
  PartialFile& operator=(const PartialFile&) = delete;
  ~PartialFile() {
    if (descriptor_ >= 0) {
      ::close(descriptor_);
    }
  }
  bool is_open() const { return descriptor_ >= 0; }
  uint64_t bytes() const {
    struct stat info{};
    return ::fstat(descriptor_, &info) == 0 ? static_cast<uint64_t>(info.st_size) : 0;
  }
  void truncate(uint64_t bytes) const {
    [[maybe_unused]] const int failed = ::ftruncate(descriptor_, static_cast<off_t>(bytes));
  }
  /// 0, or why not all could be written (errno).
  int append(std::string_view data) const {
    ::lseek(descriptor_, 0, SEEK_END);
    while (!data.empty()) {
      const ssize_t written = ::write(descriptor_, data.data(), data.size());
      if (written < 0 && errno == EINTR) {
        continue;
      }
      if (written <= 0) {
        return written < 0 ? errno : ENOSPC;
      }
      data.remove_prefix(static_cast<size_t>(written));
    }
    return 0;
  }

 private:
  int descriptor_;
};

/// One file as the hub describes it.
struct RemoteFile {
  std::string name;
  std::string etag;
  uint64_t bytes = 0;
};

/// Talks to one hub about one model.
class Download {
 public:
  Download(const HubConfig& config, HubModel model, const HubCache& cache,
           const HubProgress& progress)
      : config_(config),
        name_(std::move(model.name)),
        suffix_(std::move(model.suffix)),
        cache_(cache),
        progress_(progress) {}

  Result<fs::path> run() {
    STATOR_TRY(const json::Value info, fetch_info());
    const json::Value* sha = info.find("sha");
    const json::Value* siblings = info.find("siblings");
    if (sha == nullptr || !sha->is_string() || siblings == nullptr || !siblings->is_array()) {
      return Error(Code::kCorrupt,
                   config_.endpoint + " describes '" + name_ + "' in an unknown way");
    }
    commit_ = std::string(sha->text());
    if (!is_commit(commit_)) {
      return Error(Code::kCorrupt,
                   fmt::format("{} describes '{}' with a commit that is none: nothing was written",
                               config_.endpoint, name_));
    }
    STATOR_TRY(const std::string gguf, choose(*siblings));
    STATOR_CHECK(cache_.prepare(commit_));
    for (const json::Value& sibling : siblings->elements()) {
      const std::string_view file = sibling.text_at({"rfilename"});
      if (file == gguf ||
          (is_wanted_file(file) && (gguf.empty() || !file.ends_with(kSafetensors)))) {
        STATOR_CHECK(fetch(std::string(file)), "downloading " + name_);
      }
    }
    // Last: a snapshot with a ref is complete.
    STATOR_CHECK(cache_.write_ref(config_.revision, commit_));
    return gguf.empty() ? cache_.snapshot(commit_) : cache_.snapshot(commit_) / gguf;
  }

 private:
  static constexpr std::string_view kSafetensors = ".safetensors";

  /// The .gguf file to serve; empty where the repository holds another format.
  Result<std::string> choose(const json::Value& siblings) const {
    std::vector<std::string> files;
    bool safetensors = false;
    bool gguf = false;
    for (const json::Value& sibling : siblings.elements()) {
      files.emplace_back(sibling.text_at({"rfilename"}));
      safetensors = safetensors || files.back().ends_with(kSafetensors);
      gguf = gguf || files.back().ends_with(".gguf");
    }
    if (suffix_.empty() && (safetensors || !gguf)) {
      return std::string();
    }
    STATOR_TRY(std::string chosen, choose_gguf(std::move(files), suffix_), name_);
    return chosen;
  }

  net::HttpHeaderList headers() const {
    net::HttpHeaderList list = {{"User-Agent", "stator"}};
    if (!config_.token.empty()) {
      list.emplace_back("Authorization", "Bearer " + config_.token);
    }
    return list;
  }

  Result<json::Value> fetch_info() {
    const std::string url =
        fmt::format("{}/api/models/{}/revision/{}", config_.endpoint, name_, config_.revision);
    STATOR_TRY(const auto response, net::http_request({.url = url, .headers = headers()}),
               "the model hub cannot be reached; give a local folder, or set HF_ENDPOINT");
    if (response.status == 401 || response.status == 403) {
      return Error(
          Code::kNotFound,
          fmt::format("'{}' is gated or does not exist at {}: set HF_TOKEN, or check the name",
                      name_, config_.endpoint));
    }
    if (response.status == 404) {
      return Error(Code::kNotFound, fmt::format("'{}' (revision {}) does not exist at {}", name_,
                                                config_.revision, config_.endpoint));
    }
    auto body = json::parse(response.body);
    if (response.status != 200 || !body || !body->is_object()) {
      return Error(Code::kUnavailable, fmt::format("{} answered {}", url, response.status));
    }
    return body;
  }

  std::string file_url(const std::string& file) const {
    return fmt::format("{}/{}/resolve/{}/{}", config_.endpoint, name_, commit_, file);
  }

  Result<RemoteFile> describe_file(const std::string& file) {
    net::HttpClientOptions options;
    options.follow_redirects = false;  // the checksum headers are on the hub's own answer
    STATOR_TRY(const auto response,
               net::http_request({.method = "HEAD", .url = file_url(file), .headers = headers()},
                                 options));
    if (response.status >= 400) {
      return Error(Code::kUnavailable,
                   fmt::format("{} answered {}", file_url(file), response.status));
    }
    const auto linked = response.header("x-linked-etag");
    std::string etag(linked ? *linked : response.header("etag").value_or(""));
    std::erase(etag, '"');
    if (etag.starts_with("W/")) {
      etag.erase(0, 2);
    }
    if (etag.empty()) {
      return Error(Code::kCorrupt, file_url(file) + " has no ETag");
    }
    etag = blob_name(etag);
    const auto bytes = response.header("x-linked-size");
    const std::string size(bytes ? *bytes : response.header("content-length").value_or("0"));
    return RemoteFile{file, std::move(etag), std::strtoull(size.c_str(), nullptr, 10)};
  }

  Status fetch(const std::string& file) {
    STATOR_TRY(const RemoteFile remote, describe_file(file));
    if (!fs::exists(cache_.blob(remote.etag))) {
      const fs::path partial = cache_.partial(remote.etag);
      {
        const PartialFile out(partial);
        if (!out.is_open()) {
          return Error(Code::kIo, "cannot write " + partial.string() + "; set hub.cache_dir");
        }
        STATOR_CHECK(check_room(out, remote));
        STATOR_CHECK(fill(out, remote));
      }
      STATOR_TRY(const bool good, verify_blob(partial, remote.etag));
      if (!good) {
        std::error_code ignored;
        fs::remove(partial, ignored);
        return Error(
            Code::kCorrupt,
            fmt::format("'{}' does not have the checksum the hub states; it was removed, try "
                        "again",
                        file));
      }
      fs::rename(partial, cache_.blob(remote.etag));
    }
    return cache_.link(commit_, file, remote.etag);
  }

  /// Known before the first byte rather than after an hour.
  Status check_room(const PartialFile& out, const RemoteFile& remote) const {
    std::error_code unknown;
    const fs::space_info space = fs::space(cache_.partial(remote.etag).parent_path(), unknown);
    const uint64_t missing = remote.bytes - std::min(remote.bytes, out.bytes());
    if (!unknown && missing > space.available) {
      return Error(Code::kIo,
                   fmt::format("'{}' needs {} more bytes, {} are free under {}: free some, or set "
                               "hub.cache_dir (HF_HUB_CACHE)",
                               remote.name, missing, space.available,
                               cache_.partial(remote.etag).parent_path().string()));
    }
    return {};
  }

  /// Appends what is missing; a connection that breaks is resumed, not begun again.
  Status fill(const PartialFile& out, const RemoteFile& remote) {
    for (int attempt = 1;; ++attempt) {
      const uint64_t have = out.bytes();
      if (have > 0 && have == remote.bytes) {
        return {};
      }
      net::HttpClientOptions options;
      options.timeout = Duration::zero();
      options.resume_from = have;
      int failure = 0;  // errno of a write
      uint64_t done = have;
      bool first = true;
      const auto response = net::http_request({.url = file_url(remote.name), .headers = headers()},
                                              options, [&](std::string_view bytes) {
                                                if (std::exchange(first, false) && have == 0) {
                                                  out.truncate(0);
                                                }
                                                done += bytes.size();
                                                failure = out.append(bytes);
                                                if (progress_) {
                                                  progress_(remote.name, done, remote.bytes);
                                                }
                                                return failure == 0;
                                              });
      if (failure != 0) {
        return Error(
            Code::kIo,
            fmt::format("cannot write {}: {} ({} of {} bytes are there): make room, or set "
                        "hub.cache_dir (HF_HUB_CACHE), and try again, it goes on from there",
                        cache_.partial(remote.etag).string(),
                        std::generic_category().message(failure), out.bytes(), remote.bytes));
      }
      if (response && response->status == 200 && have > 0) {
        out.truncate(0);  // the server ignored the range: what was appended is not a continuation
      } else if (response && response->status < 300) {
        return {};
      } else if (response && response->status == 416) {
        out.truncate(0);
      } else if (attempt == kAttemptsMax) {
        return response ? Status(Error(Code::kUnavailable,
                                       fmt::format("{} answered {}", file_url(remote.name),
                                                   response->status)))
                        : Status(response.error().clone());
      }
      if (attempt == kAttemptsMax) {
        return Error(Code::kUnavailable, file_url(remote.name) + " cannot be resumed");
      }
      if (response && response->status >= 300 && response->status != 416) {
        out.truncate(have);  // an error page is not part of the file
      }
      log::warn("weights", "download interrupted, resuming",
                {{"file", remote.name}, {"attempt", attempt}, {"bytes", out.bytes()}});
    }
  }

  const HubConfig& config_;
  const std::string name_;
  const std::string suffix_;
  const HubCache& cache_;
  const HubProgress& progress_;
  std::string commit_;
};

/// kInvalidArgument if asking the hub would show the token to whoever listens.
Status check_token_stays_secret(const HubConfig& config) {
  if (config.token.empty() || config.endpoint.starts_with("https://") ||
      net::is_loopback_url(config.endpoint)) {
    return {};
  }
  return Error(Code::kInvalidArgument,
               fmt::format("hub.endpoint (HF_ENDPOINT) {} is not encrypted, and hub.token "
                           "(HF_TOKEN) would be sent in clear: use https://, or unset the token",
                           config.endpoint));
}

}  // namespace

void describe(ConfigSchema& schema, HubConfig& config) {
  schema.text("hub.endpoint", config.endpoint, "where MODEL names are looked up",
              {.env_peer = "HF_ENDPOINT"});
  schema.text("hub.cache_dir", config.cache_dir, "model cache, default ~/.cache/huggingface/hub",
              {.env_peer = "HF_HUB_CACHE"});
  schema.text("hub.revision", config.revision, "branch, tag or commit to serve");
  schema.secret("hub.token", config.token, "for gated models", {.env_peer = "HF_TOKEN"});
  schema.boolean("hub.offline", config.offline, "use only what the cache has",
                 {.env_peer = "HF_HUB_OFFLINE"});
}

Result<std::string> resolve_model(const std::string& model, const HubConfig& config,
                                  const HubProgress& progress) {
  std::error_code ignored;
  if (fs::is_directory(model, ignored)) {
    return model;
  }
  if (fs::is_regular_file(model, ignored)) {
    if (fs::path(model).extension() == ".gguf") {
      return model;
    }
    return Error(
        Code::kInvalidArgument,
        fmt::format("MODEL '{}' is a file: give the folder it is in, or a .gguf file", model));
  }
  const std::optional<HubModel> named = parse_hub_model(model);
  if (!named && (model.ends_with(".gguf") || model.starts_with('/') || model.starts_with('.'))) {
    return Error(Code::kNotFound, fmt::format("MODEL '{}': no such file or folder", model));
  }
  if (!named) {
    return Error(
        Code::kNotFound,
        fmt::format(
            "MODEL '{}' is neither a folder nor a hub name like ORG/NAME or ORG/NAME:Q4_K_M",
            model));
  }
  if (config.cache_dir.empty()) {
    return Error(Code::kInvalidArgument, "hub.cache_dir is empty: set it, HF_HUB_CACHE or HOME");
  }
  if (!is_revision(config.revision)) {
    return Error(Code::kInvalidArgument,
                 fmt::format("hub.revision: '{}' is no branch, tag or commit", config.revision));
  }
  const HubCache cache(config.cache_dir, named->name);
  if (const auto snapshot = cache.find_snapshot(config.revision);
      snapshot && named->suffix.empty()) {
    return snapshot->string();
  }
  if (const auto file = cache.find_gguf(config.revision, named->suffix)) {
    return file->string();
  }
  if (config.offline) {
    return Error(
        Code::kNotFound,
        fmt::format("MODEL '{}' is not a folder, and not in the cache {} (hub.offline is on)",
                    model, config.cache_dir));
  }
  STATOR_CHECK(check_token_stays_secret(config));
  STATOR_TRY(const fs::path snapshot, Download(config, *named, cache, progress).run());
  return snapshot.string();
}

}  // namespace stator::weights
