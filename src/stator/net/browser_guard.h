// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "stator/core/result.h"
#include "stator/net/http_request.h"

namespace stator::net {

/// Which pages in browsers may change something at a server, and by which names it is known.
struct BrowserRules {
  std::string_view cors_origins;   ///< as http.cors_origins
  std::string_view allowed_hosts;  ///< host names with commas, beside localhost and IP addresses
};

/// Any page can make its reader's browser send requests to any address that the browser reaches:
/// without asking, if they look like a form's. The browser says which page it was (Origin). A
/// request with an Origin may change something only if that origin is allowed, or is this server
/// itself under a name that nobody else can have given it: a page that points its own name at our
/// address (DNS rebinding) looks like ours. Requests without an Origin come from no page.
/// kPermissionDenied names the settings.
Status check_may_change(const HttpRequest& request, const BrowserRules& rules);

/// kPermissionDenied unless the Host of `request` is localhost, an IP address or an allowed name:
/// for servers that only this machine reaches, where any other name was rebound by a page.
Status check_host(const HttpRequest& request, std::string_view allowed_hosts);

}  // namespace stator::net
