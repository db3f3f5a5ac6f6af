// SPDX-License-Identifier: Apache-2.0
#include "stator/services/replica_endpoints.h"

#include "stator/core/hash.h"
#include "stator/json/writer.h"
#include "stator/services/json_fields.h"

namespace stator::services {
namespace {

constexpr std::string_view kTcp = "tcp://";

Result<std::string> read_endpoint(const ServiceRequest& request) {
  STATOR_TRY(const Fields fields, Fields::parse(request.body));
  STATOR_TRY(std::string endpoint, fields.text("endpoint"));
  STATOR_CHECK(check_endpoint(endpoint));
  return endpoint;
}

}  // namespace

void add_replica_endpoints(ServiceApi& api, PeerList& peers, bool has_hub) {
  api.add("POST", "/replica_sync/register_peer",
          [&peers, has_hub](const auto& request) -> Result<ServiceReply> {
            STATOR_TRY(std::string endpoint, read_endpoint(request));
            if (!has_hub) {
              return Error(Code::kAlreadyExists,
                           "replica sync is off: start the service with --replica-sync-port");
            }
            STATOR_TRY(const PeerList::Added added, peers.add(std::move(endpoint)));
            return ok_reply(added == PeerList::Added::kNow ? 201 : 200);
          });
  api.add("POST", "/replica_sync/deregister_peer",
          [&peers](const auto& request) -> Result<ServiceReply> {
            STATOR_TRY(const std::string endpoint, read_endpoint(request));
            STATOR_CHECK(peers.remove(endpoint));
            return ok_reply();
          });
  api.add("GET", "/replica_sync/peers", [&peers](const auto&) {
    ServiceReply reply;
    json::Writer out(reply.body);
    out.begin_array();
    for (const std::string& peer : peers.all()) {
      out.value(peer);
    }
    out.end_array();
    return reply;
  });
}

std::vector<router::ReplicaHub::Peer> replica_peers(const PeerList& peers) {
  std::vector<router::ReplicaHub::Peer> found;
  for (const std::string& endpoint : peers.all()) {
    const std::string_view address = std::string_view(endpoint).substr(kTcp.size());
    found.push_back({xxh3_64(address), std::string(address)});
  }
  return found;
}

}  // namespace stator::services
