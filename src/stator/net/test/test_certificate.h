// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace stator::net {

/// A fresh self-signed certificate for 127.0.0.1 and localhost, in a temporary folder that goes
/// away with the object.
class TestCertificate {
 public:
  TestCertificate();
  TestCertificate(const TestCertificate&) = delete;
  TestCertificate& operator=(const TestCertificate&) = delete;
  ~TestCertificate();

  std::string cert_path() const { return folder_ + "/cert.pem"; }
  std::string key_path() const { return folder_ + "/key.pem"; }

 private:
  std::string folder_;
};

}  // namespace stator::net
