// SPDX-License-Identifier: Apache-2.0
#include "stator/net/detail/renewed_context.h"

#include <sys/stat.h>

#include <utility>

#include "stator/core/log.h"

namespace stator::net::detail {

Result<std::unique_ptr<RenewedContext>> RenewedContext::create(
    std::vector<std::filesystem::path> files, Load load) {
  std::unique_ptr<RenewedContext> made(new RenewedContext(std::move(files), std::move(load)));
  const MutexLock lock(made->mutex_);
  made->seen_ = made->look();  // before reading: what changes meanwhile is read again
  STATOR_TRY(made->context_, made->load_());
  return made;
}

std::vector<RenewedContext::Stamp> RenewedContext::look() const {
  std::vector<Stamp> stamps(files_.size());
  for (size_t i = 0; i < files_.size(); ++i) {
    struct stat file{};
    if (::stat(files_[i].c_str(), &file) == 0) {
      stamps[i] = {.device = file.st_dev,
                   .inode = file.st_ino,
                   .size = file.st_size,
                   .changed_ns = file.st_mtim.tv_sec * 1'000'000'000 + file.st_mtim.tv_nsec};
    }
  }
  return stamps;
}

std::shared_ptr<SSL_CTX> RenewedContext::current() const {
  std::vector<Stamp> now = look();
  const MutexLock lock(mutex_);
  if (now == seen_) {
    return context_;
  }
  seen_ = std::move(now);
  auto renewed = load_();
  if (renewed) {
    context_ = std::move(*renewed);
    log::info("net::tls", "certificates renewed",
              {{"file", files_.empty() ? "" : files_.front().string()}});
  } else {
    log::warn("net::tls", "new certificates cannot be used, the ones before stay",
              {{"error", renewed.error().message()}});
  }
  return context_;
}

}  // namespace stator::net::detail
