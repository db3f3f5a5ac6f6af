// SPDX-License-Identifier: Apache-2.0
#include "stator/kube/access.h"

#include <gtest/gtest.h>

#include <string>

#include "stator/kube/exec_credential.h"

namespace stator::kube {
namespace {

using namespace std::chrono_literals;

std::string with_user(std::string_view user) {
  return "current-context: a\ncontexts: [{name: a, context: {cluster: c, user: u, namespace: n}}]\n"
         "clusters: [{name: c, cluster: {server: 'https://h:1/', certificate-authority: ca.pem}}]\n"
         "users: [{name: u, user: " +
         std::string(user) + "}]\n";
}

std::string exec_user(std::string_view script, std::string_view version = "v1") {
  return with_user(
      "{exec: {apiVersion: client.authentication.k8s.io/" + std::string(version) +
      ", command: sh, args: [-c, '" + std::string(script) +
      "'], env: [{name: WHO, value: me}], provideClusterInfo: true, installHint: get it}}");
}

TEST(Kubeconfig, SaysHowToReachTheServer) {
  const auto access = parse_kubeconfig(with_user("{token: t, client-key-data: aGk=}"), "/f/config");
  ASSERT_TRUE(access) << access.error().message();
  EXPECT_EQ(access->server, "https://h:1");
  EXPECT_EQ(access->space, "n");
  EXPECT_EQ(access->ca_path, "/f/ca.pem");
  EXPECT_EQ(access->token, "t");
  EXPECT_EQ(access->key, "hi");
  EXPECT_EQ(parse_kubeconfig(with_user("{auth-provider: {name: gcp}}"), "f").error().code(),
            Code::kUnsupported);
  EXPECT_FALSE(parse_kubeconfig(with_user("{exec: {apiVersion: x, command: y}}"), "f"));
  EXPECT_FALSE(parse_kubeconfig("[]", "f"));
}

TEST(Kubeconfig, AProgramLogsIn) {
  const auto access = parse_kubeconfig(
      exec_user(
          "echo chatter >&2; case $KUBERNETES_EXEC_INFO in *https://h:1*) ;; *) exit 7;; esac;"
          "echo "
          "\"{\\\"kind\\\":\\\"ExecCredential\\\",\\\"status\\\":{\\\"token\\\":\\\"of-$WHO\\\","
          "\\\"expirationTimestamp\\\":\\\"2033-05-18T03:33:20Z\\\"}}\""),
      "/f/config");
  ASSERT_TRUE(access) << access.error().message();
  const auto credential = run_exec_plugin(access->exec);
  ASSERT_TRUE(credential) << credential.error().message();
  EXPECT_EQ(credential->token, "of-me");
  const WallTime end(2'000'000'000s);
  EXPECT_EQ(credential->expires, end);
  EXPECT_TRUE(credential->is_good(end - 31s));
  EXPECT_FALSE(credential->is_good(end - 29s));
  EXPECT_FALSE(ExecCredential().is_good(end));
}

TEST(Kubeconfig, AProgramThatFailsSaysWhatToDo) {
  const auto failing = parse_kubeconfig(exec_user("echo secret; exit 3", "v1beta1"), "/f/config");
  ASSERT_TRUE(failing);
  const auto failed = run_exec_plugin(failing->exec);
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().message(), "the kubeconfig's program 'sh' failed with status 3");
  const auto silly = parse_kubeconfig(exec_user("echo secret"), "/f/config");
  EXPECT_EQ(run_exec_plugin(silly->exec).error().message().find("secret"), std::string::npos);
  ExecPlugin absent = silly->exec;
  absent.command = {"no-such-program-here"};
  EXPECT_NE(run_exec_plugin(absent).error().message().find("get it"), std::string::npos);
}

}  // namespace
}  // namespace stator::kube
