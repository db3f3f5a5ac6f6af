// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "stator/app/settings.h"
#include "stator/app/signals.h"
#include "stator/core/clock.h"
#include "stator/discovery/discovery.h"

namespace stator::app {

/// `kv.store` with this value: the address is found through discovery.
inline constexpr std::string_view kDiscoverStore = "discover";

/// Publishes a `stator store` ("kv/store" in discovery) until the result is destroyed. `address` is
/// "HOST:PORT", as engines reach it.
Result<std::unique_ptr<discovery::Registration>> publish_store(discovery::Discovery& discovery,
                                                               std::string address,
                                                               const Clock& clock);

/// The settings, with the address of a store where they say "discover": one of this host, else the
/// one that started first. None within five seconds: said in the log, and no store is used.
Settings with_store(const Settings& settings, discovery::Discovery& discovery, Signals& signals);

}  // namespace stator::app
