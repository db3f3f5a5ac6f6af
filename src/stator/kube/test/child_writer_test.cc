// SPDX-License-Identifier: Apache-2.0
#include "stator/kube/child_writer.h"

#include <gtest/gtest.h>

#include "stator/kube/base64.h"
#include "stator/kube/certificates.h"

namespace stator::kube {
namespace {

using json::Value;

Value from(std::string_view text) {
  auto value = json::parse(text);
  EXPECT_TRUE(value) << text;
  return std::move(*value);
}

TEST(ErasePath, TakesOutWhatAServerNames) {
  Value pod = from(
      R"({"spec":{"containers":[{"name":"main","new":1,"image":"i"}],"list":[{"x":1},{"y":2}],"odd":3}})");
  EXPECT_TRUE(erase_path(pod, ".spec.containers[name=\"main\"].new"));
  EXPECT_TRUE(erase_path(pod, ".spec.list[1].y"));
  EXPECT_TRUE(erase_path(pod, ".spec.odd"));
  EXPECT_EQ(json::to_text(pod),
            R"({"spec":{"containers":[{"name":"main","image":"i"}],"list":[{"x":1},{}]}})");
}

TEST(ErasePath, LeavesAloneWhatIsNotThere) {
  Value pod = from(R"({"spec":{"list":[1]}})");
  const std::string before = json::to_text(pod);
  for (const std::string_view path : {".spec.none", ".spec.list[7]", ".spec.list[x].y", "spec", "",
                                      ".spec.list[0", ".a.b.c", ".spec.list[name=\"q\"].y"}) {
    EXPECT_FALSE(erase_path(pod, path)) << path;
  }
  EXPECT_EQ(json::to_text(pod), before);
}

TEST(MergePatch, OfADifferenceGivesTheOther) {
  const Value before = from(R"({"a":1,"b":{"c":2,"d":[1]},"gone":true})");
  const Value after = from(R"({"a":1,"b":{"c":3,"d":[1,2]},"new":{"x":1}})");
  const Value patch = diff_as_merge_patch(before, after);
  Value patched = before;
  merge_patch(patched, patch);
  EXPECT_TRUE(same(patched, after)) << json::to_text(patched);
  EXPECT_EQ(diff_as_merge_patch(after, after).size(), 0U);
}

TEST(Base64, ComesBackWhateverItsLength) {
  for (const std::string_view text : {"", "a", "ab", "abc", "abcd", "\xff\x01"}) {
    EXPECT_EQ(from_base64(to_base64(text)), std::string(text));
  }
  EXPECT_EQ(to_base64("hello"), "aGVsbG8=");
  EXPECT_FALSE(from_base64("not base64!"));
}

TEST(Certificates, ServersAreCertifiedForTheirHostsUntilTheyEnd) {
  using namespace std::chrono_literals;
  const WallTime now(std::chrono::seconds(1'800'000'000));
  const KeyPair authority = make_authority("test", now).value();
  const std::vector<std::string> hosts = {"op.ns.svc", "127.0.0.1"};
  const KeyPair server = make_server_certificate(authority, hosts, now, 48h).value();
  EXPECT_TRUE(certifies(server, authority.certificate, hosts));
  EXPECT_FALSE(certifies(server, authority.certificate, {"other.ns.svc"}));
  EXPECT_FALSE(certifies(server, make_authority("other", now).value().certificate, hosts));
  EXPECT_EQ(end_of_certificate(server.certificate).value(), now + 48h);
  EXPECT_FALSE(end_of_certificate("nonsense"));
}

TEST(SshKeys, AreWrittenAsSshReadsThem) {
  const SshKey key = make_ssh_key().value();
  EXPECT_TRUE(key.secret.starts_with("-----BEGIN RSA PRIVATE KEY-----"));
  ASSERT_TRUE(key.shared.starts_with("ssh-rsa AAAAB3NzaC1yc2EAAAADAQAB"));  // the name, and 65537
}

}  // namespace
}  // namespace stator::kube
