// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace stator::net {

/// Whether only this host can be meant: localhost, 127.0.0.0/8 and ::1 (with or without brackets).
/// A name that merely begins with "127." is not: others own such names. Looks nothing up.
bool is_loopback_host(std::string_view host);

/// A host as it stands in a URL and before a port: IPv6 addresses in brackets, the rest as it is.
std::string host_in_url(std::string_view host);

/// `is_loopback_host` of a URL's host; false for what is no URL.
bool is_loopback_url(const std::string& url);

/// A link-local address (169.254.0.0/16, fe80::/10), in any of the spellings a resolver takes for
/// one: where clouds answer every process with its machine's credentials, and where no engine is.
bool is_link_local_host(std::string_view host);

}  // namespace stator::net
