// SPDX-License-Identifier: Apache-2.0
#include "stator/weights/hub_cache.h"

#include <fmt/format.h>
#include <openssl/evp.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <fstream>
#include <memory>
#include <vector>

namespace stator::weights {
namespace {

namespace fs = std::filesystem;

constexpr size_t kNameBytesMax = 96;
constexpr size_t kPathPartBytesMax = 200;

bool is_name_part(std::string_view part) {
  return !part.empty() && part.size() <= kNameBytesMax && part.front() != '.' &&
         std::ranges::all_of(part, [](unsigned char c) {
           return std::isalnum(c) != 0 || c == '-' || c == '_' || c == '.';
         });
}

/// What a hub may name a file or a branch's part, for us: plain in a URL as in a path.
bool is_path_part(std::string_view part) {
  return !part.empty() && part.size() <= kPathPartBytesMax && part.front() != '.' &&
         std::ranges::all_of(part, [](unsigned char c) {
           return std::isalnum(c) != 0 || std::string_view("-_.+=@").contains(static_cast<char>(c));
         });
}

bool is_hex(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
}

std::string hex_digest(EVP_MD_CTX* context) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned length = 0;
  EVP_DigestFinal_ex(context, digest.data(), &length);
  std::string text;
  for (unsigned i = 0; i < length; ++i) {
    text += fmt::format("{:02x}", digest[i]);
  }
  return text;
}

std::string folder_name(std::string_view name) {
  std::string folder = "models--";
  for (const char c : name) {
    folder += c == '/' ? std::string("--") : std::string(1, c);
  }
  return folder;
}

Status make_folder(const fs::path& path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (error) {
    return Error(Code::kIo, fmt::format("cannot make the cache folder '{}': {}; set hub.cache_dir",
                                        path.string(), error.message()));
  }
  return {};
}

struct DigestFree {
  void operator()(EVP_MD_CTX* context) const { EVP_MD_CTX_free(context); }
};

}  // namespace

bool is_hub_name(std::string_view name) {
  const size_t slash = name.find('/');
  return slash != std::string_view::npos && is_name_part(name.substr(0, slash)) &&
         is_name_part(name.substr(slash + 1));
}

bool is_commit(std::string_view text) {
  return text.size() >= 7 && text.size() <= 64 && std::ranges::all_of(text, is_hex);
}

bool is_revision(std::string_view text) {
  size_t parts = 0;
  for (size_t at = 0; at <= text.size(); ++parts) {
    const size_t slash = std::min(text.find('/', at), text.size());
    if (!is_path_part(text.substr(at, slash - at))) {
      return false;
    }
    at = slash + 1;
  }
  return parts > 0;
}

std::string blob_name(std::string_view etag) {
  if (is_commit(etag)) {
    return std::string(etag);
  }
  const std::unique_ptr<EVP_MD_CTX, DigestFree> context(EVP_MD_CTX_new());
  EVP_DigestInit_ex(context.get(), EVP_sha256(), nullptr);
  EVP_DigestUpdate(context.get(), etag.data(), etag.size());
  return "etag-" + hex_digest(context.get());
}

bool is_wanted_file(std::string_view name) {
  if (const size_t slash = name.find('/'); slash != std::string_view::npos) {
    // How sentence-transformers pool: "1_Pooling/config.json". Other subfolders have other formats.
    const std::string_view folder = name.substr(0, slash);
    return is_path_part(folder) && folder.ends_with("_Pooling") &&
           name.substr(slash + 1) == "config.json";
  }
  if (!is_path_part(name)) {
    return false;
  }
  return name.ends_with(".json") || name.ends_with(".safetensors") || name.ends_with(".jinja");
}

HubCache::HubCache(fs::path cache_dir, std::string_view name)
    : root_(std::move(cache_dir) / folder_name(name)) {}

std::optional<fs::path> HubCache::find_snapshot(const std::string& revision) const {
  std::string commit;
  std::ifstream ref(root_ / "refs" / revision);
  if (!(ref >> commit)) {
    commit = revision;  // a commit was asked for directly
  }
  if (!is_commit(commit)) {
    return std::nullopt;  // no snapshot has such a name
  }
  const fs::path folder = snapshot(commit);
  std::error_code ignored;
  const bool has_texts =
      fs::exists(folder / "config.json", ignored) && fs::exists(folder / "tokenizer.json", ignored);
  bool has_weights = false;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    // exists() follows the link: one whose blob is missing does not count.
    has_weights |= entry.path().extension() == ".safetensors" && fs::exists(entry.path(), ignored);
  }
  return has_texts && has_weights ? std::optional(folder) : std::nullopt;
}

Status HubCache::prepare(const std::string& commit) const {
  STATOR_CHECK(make_folder(root_ / "refs"));
  STATOR_CHECK(make_folder(root_ / "blobs"));
  return make_folder(snapshot(commit));
}

Status HubCache::link(const std::string& commit, const std::string& file,
                      const std::string& etag) const {
  const fs::path target = snapshot(commit) / file;
  std::error_code error;
  fs::path blobs = fs::path("..") / "..";
  if (target.parent_path() != snapshot(commit)) {
    blobs /= "..";
    STATOR_CHECK(make_folder(target.parent_path()));
  }
  fs::remove(target, error);
  fs::create_symlink(blobs / "blobs" / etag, target, error);
  if (error) {
    return Error(Code::kIo, fmt::format("cannot link '{}': {}", target.string(), error.message()));
  }
  return {};
}

Status HubCache::write_ref(const std::string& revision, const std::string& commit) const {
  const fs::path ref = root_ / "refs" / revision;
  STATOR_CHECK(make_folder(ref.parent_path()));  // a branch may be called a/b
  std::ofstream file(ref, std::ios::trunc);
  file << commit;
  if (!file.flush()) {
    return Error(Code::kIo, "cannot write " + ref.string());
  }
  return {};
}

Result<bool> verify_blob(const fs::path& file, std::string_view etag) {
  const bool hex = std::ranges::all_of(etag, [](unsigned char c) { return std::isxdigit(c) != 0; });
  if (!hex || (etag.size() != 64 && etag.size() != 40)) {
    return true;
  }
  std::error_code error;
  const uintmax_t size = fs::file_size(file, error);
  std::ifstream in(file, std::ios::binary);
  if (error || !in) {
    return Error(Code::kIo, "cannot read " + file.string());
  }
  const std::unique_ptr<EVP_MD_CTX, DigestFree> context(EVP_MD_CTX_new());
  EVP_DigestInit_ex(context.get(), etag.size() == 64 ? EVP_sha256() : EVP_sha1(), nullptr);
  if (etag.size() == 40) {
    const std::string header = fmt::format("blob {}", size);
    EVP_DigestUpdate(context.get(), header.c_str(), header.size() + 1);
  }
  std::vector<char> buffer(1 << 20);
  while (in.read(buffer.data(), static_cast<std::streamsize>(buffer.size())) || in.gcount() > 0) {
    EVP_DigestUpdate(context.get(), buffer.data(), static_cast<size_t>(in.gcount()));
  }
  return hex_digest(context.get()) == etag;
}

}  // namespace stator::weights
