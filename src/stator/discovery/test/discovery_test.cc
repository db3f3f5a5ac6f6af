// SPDX-License-Identifier: Apache-2.0
#include "stator/discovery/discovery.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <fstream>

#include "stator/core/mutex.h"
#include "stator/discovery/file_discovery.h"
#include "stator/discovery/memory_discovery.h"
#include "stator/discovery/test/note_log.h"
#include "stator/discovery/test/temporary_folder.h"

namespace stator::discovery {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

InstanceRecord make_record(uint64_t worker, uint64_t incarnation = 1) {
  InstanceRecord record;
  record.key.worker = WorkerId(worker);
  record.incarnation = Incarnation(incarnation);
  record.address = "127.0.0.1:1234";
  record.model.name = "demo";
  return record;
}

class Recorder final : public DiscoveryListener, public NoteLog {
 public:
  void on_synced() override { note("synced"); }
  void on_added(const InstanceRecord& record) override { note_of("added", record); }
  void on_updated(const InstanceRecord& record) override { note_of("updated", record); }
  void on_removed(const InstanceRecord& record) override { note_of("removed", record); }

 private:
  void note_of(const std::string& what, const InstanceRecord& record) {
    note(what + " " + to_string(record.key.worker) + "." + to_string(record.incarnation) + " " +
         std::string(to_string(record.state)));
  }
};

enum class Backend : uint8_t { kMemory, kFile };

/// The contract of Discovery, whatever the backend.
class DiscoveryTest : public testing::TestWithParam<Backend> {
 protected:
  void SetUp() override {
    shards_.start();
    if (GetParam() == Backend::kMemory) {
      discovery_ = make_memory_discovery(metrics_);
    } else {
      discovery_ = std::move(open_file_discovery({folder_.path()}, clock_, metrics_).value());
    }
  }
  void TearDown() override {
    EXPECT_TRUE(shards_.shard(0).run_and_wait([this] { watch_.reset(); }));
    shards_.stop();
  }
  void watch(const InstanceQuery& query = {}) {
    watch_ = discovery_->watch(query, shards_.shard(0), recorder_);
  }
  std::unique_ptr<Registration> put(InstanceRecord record) {
    return std::move(discovery_->register_instance(std::move(record)).value());
  }

  SystemClock clock_;
  Metrics metrics_;
  test::TemporaryFolder folder_;
  net::ShardSet shards_{1, clock_, metrics_};
  Recorder recorder_;
  std::unique_ptr<Discovery> discovery_;
  std::unique_ptr<Watch> watch_;
};

INSTANTIATE_TEST_SUITE_P(Backends, DiscoveryTest, testing::Values(Backend::kMemory, Backend::kFile),
                         [](const testing::TestParamInfo<Backend>& info) {
                           return info.param == Backend::kMemory ? "Memory" : "File";
                         });

TEST_P(DiscoveryTest, ListsWhatIsRegisteredUntilTheHandleGoes) {
  auto registration = put(make_record(1));
  EXPECT_THAT(discovery_->list({}), ElementsAre(make_record(1)));

  registration.reset();

  EXPECT_THAT(discovery_->list({}), IsEmpty());
}

TEST_P(DiscoveryTest, AWatchSeesTheSnapshotThenSyncedThenChanges) {
  auto first = put(make_record(1));
  watch();
  ASSERT_TRUE(recorder_.wait_for("synced"));
  auto second = put(make_record(2));
  ASSERT_TRUE(recorder_.wait_for("added 2.1 ready"));
  InstanceRecord draining = make_record(2);
  draining.state = InstanceState::kDraining;
  ASSERT_TRUE(second->update(draining).has_value());
  ASSERT_TRUE(recorder_.wait_for("updated 2.1 draining"));
  first.reset();
  ASSERT_TRUE(recorder_.wait_for("removed 1.1 ready"));

  EXPECT_THAT(recorder_.lines(), ElementsAre("added 1.1 ready", "synced", "added 2.1 ready",
                                             "updated 2.1 draining", "removed 1.1 ready"));
}

TEST_P(DiscoveryTest, AnEmptyStoreIsSyncedAtOnce) {
  watch();
  ASSERT_TRUE(recorder_.wait_for("synced"));
  EXPECT_THAT(recorder_.lines(), ElementsAre("synced"));
}

TEST_P(DiscoveryTest, QueriesMatchWholeNames) {
  InstanceRecord prefill = make_record(1);
  prefill.key.component = "back";
  auto first = put(prefill);
  auto second = put(make_record(2));

  EXPECT_THAT(discovery_->list({.component = "back"}), ElementsAre(prefill));
  EXPECT_THAT(discovery_->list({.component = "backend"}), ElementsAre(make_record(2)));
  EXPECT_THAT(discovery_->list({.namespace_name = "other"}), IsEmpty());
}

TEST_P(DiscoveryTest, TheSameContentAgainIsFineOtherContentIsNot) {
  auto first = put(make_record(1));
  auto again = put(make_record(1));
  InstanceRecord other = make_record(1);
  other.address = "127.0.0.1:9";

  const auto refused = discovery_->register_instance(other);

  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code(), Code::kAlreadyExists);
}

TEST_P(DiscoveryTest, ANewLifeReplacesTheOldOneWhoseEndThenChangesNothing) {
  auto old_life = put(make_record(1, 1));
  watch();
  ASSERT_TRUE(recorder_.wait_for("added 1.1 ready"));
  auto new_life = put(make_record(1, 2));
  ASSERT_TRUE(recorder_.wait_for("added 1.2 ready"));
  old_life.reset();

  EXPECT_THAT(discovery_->list({}), ElementsAre(make_record(1, 2)));
  EXPECT_THAT(recorder_.lines(),
              ElementsAre("added 1.1 ready", "synced", "removed 1.1 ready", "added 1.2 ready"));
}

TEST_P(DiscoveryTest, AnUpdateKeepsKeyAndIncarnation) {
  auto registration = put(make_record(1));
  EXPECT_EQ(registration->update(make_record(2)).error().code(), Code::kInvalidArgument);
  EXPECT_EQ(registration->update(make_record(1, 9)).error().code(), Code::kInvalidArgument);
}

TEST_P(DiscoveryTest, RefusesInvalidRecords) {
  InstanceRecord record = make_record(1);
  record.key.component = "Not/Allowed";
  EXPECT_EQ(discovery_->register_instance(record).error().code(), Code::kInvalidArgument);
}

/// What is special about files: several processes, leases, damage.
class FileDiscoveryTest : public testing::Test {
 protected:
  void SetUp() override { shards_.start(); }
  void TearDown() override {
    EXPECT_TRUE(shards_.shard(0).run_and_wait([this] { watch_.reset(); }));
    shards_.stop();
  }
  std::unique_ptr<Discovery> open(Duration ttl = std::chrono::seconds(10)) {
    return std::move(open_file_discovery({folder_.path(), ttl}, clock_, metrics_).value());
  }
  std::filesystem::path file_of(const InstanceRecord& record) const {
    return folder_.path() / "instances" /
           ("default%2Fbackend%2Fgenerate%2F" + to_string(record.key.worker));
  }
  /// Whatever the umask is.
  static void make_private(const std::filesystem::path& folder) {
    std::filesystem::create_directories(folder);
    std::filesystem::permissions(folder, std::filesystem::perms::owner_all);
  }
  std::string refusal(const std::filesystem::path& root) {
    const auto opened = open_file_discovery({root}, clock_, metrics_);
    return opened.has_value() ? "" : opened.error().to_string();
  }
  void write_file(const std::filesystem::path& path, const std::string& content) {
    make_private(path.parent_path());
    std::ofstream(path) << content;
  }
  /// Of an owner that is gone. However late it is seen, it counts as fresh then.
  void write_ownerless(const InstanceRecord& record) {
    const std::filesystem::path draft = folder_.path() / "draft";
    write_file(draft, to_json(record));
    const timespec late[2] = {{.tv_sec = 4'000'000'000}, {.tv_sec = 4'000'000'000}};
    ASSERT_EQ(::utimensat(AT_FDCWD, draft.c_str(), late, 0), 0);
    make_private(file_of(record).parent_path());
    std::filesystem::rename(draft, file_of(record));
  }
  double count(std::string_view name) const {
    const std::string text = metrics_.render();
    const size_t at = text.rfind("\n" + std::string(name) + " ");
    return at == std::string::npos ? -1 : std::stod(text.substr(at + name.size() + 2));
  }

  SystemClock clock_;
  Metrics metrics_;
  test::TemporaryFolder folder_;
  net::ShardSet shards_{1, clock_, metrics_};
  Recorder recorder_;
  std::unique_ptr<Watch> watch_;
};

TEST_F(FileDiscoveryTest, TwoProcessesSeeEachOther) {
  auto here = open();
  auto there = open();
  watch_ = here->watch({}, shards_.shard(0), recorder_);
  ASSERT_TRUE(recorder_.wait_for("synced"));

  auto registration = std::move(there->register_instance(make_record(3)).value());
  ASSERT_TRUE(recorder_.wait_for("added 3.1 ready"));
  registration.reset();

  EXPECT_TRUE(recorder_.wait_for("removed 3.1 ready"));
}

TEST_F(FileDiscoveryTest, ARecordNobodyTouchesExpiresAndItsFileIsRemoved) {
  write_ownerless(make_record(5));
  auto discovery = open(std::chrono::milliseconds(300));
  watch_ = discovery->watch({}, shards_.shard(0), recorder_);
  ASSERT_TRUE(recorder_.wait_for("added 5.1 ready"));

  ASSERT_TRUE(recorder_.wait_for("removed 5.1 ready"));
  EXPECT_GE(count("stator_runtime_discovery_stale_removed_total"), 0);
}

TEST_F(FileDiscoveryTest, OwnersKeepTheirRecordsAliveBeyondTheTtl) {
  auto owner = open(std::chrono::seconds(2));  // longer than a machine stands still
  auto registration = std::move(owner->register_instance(make_record(1)).value());
  // A second record that nobody touches tells when more than a TTL has passed.
  write_ownerless(make_record(5));
  auto other = open(std::chrono::seconds(2));
  watch_ = other->watch({}, shards_.shard(0), recorder_);
  ASSERT_TRUE(recorder_.wait_for("removed 5.1 ready"));

  EXPECT_THAT(other->list({}), ElementsAre(make_record(1)));
}

TEST_F(FileDiscoveryTest, RecordsOfAKilledFormerLifeAreNotListed) {
  write_file(file_of(make_record(5)), to_json(make_record(5)));
  const timespec old[2] = {{.tv_sec = 1'000'000}, {.tv_sec = 1'000'000}};
  ASSERT_EQ(::utimensat(AT_FDCWD, file_of(make_record(5)).c_str(), old, 0), 0);

  auto discovery = open();

  EXPECT_THAT(discovery->list({}), IsEmpty());
}

TEST_F(FileDiscoveryTest, ABadRecordKeepsItsPreviousValueAndIsCounted) {
  auto discovery = open();
  write_file(file_of(make_record(5)), to_json(make_record(5)));
  watch_ = discovery->watch({}, shards_.shard(0), recorder_);
  ASSERT_TRUE(recorder_.wait_for("added 5.1 ready"));

  write_file(file_of(make_record(5)), "{ not json");
  write_file(file_of(make_record(7)), to_json(make_record(6)));  // lies about who it is
  write_file(file_of(make_record(8)), to_json(make_record(8)));
  ASSERT_TRUE(recorder_.wait_for("added 8.1 ready"));

  EXPECT_THAT(discovery->list({}), ElementsAre(make_record(5), make_record(8)));
  EXPECT_GE(count("stator_runtime_discovery_bad_records_total"), 2);
}

TEST_F(FileDiscoveryTest, AnOwnRecordDeletedByHandComesBack) {
  auto owner = open(std::chrono::milliseconds(300));
  auto registration = std::move(owner->register_instance(make_record(1)).value());
  watch_ = owner->watch({}, shards_.shard(0), recorder_);
  ASSERT_TRUE(recorder_.wait_for("added 1.1 ready"));

  std::filesystem::remove(file_of(make_record(1)));

  ASSERT_TRUE(recorder_.wait_for("removed 1.1 ready"));
  EXPECT_TRUE(recorder_.wait_for("added 1.1 ready", 2));
  EXPECT_GE(count("stator_runtime_discovery_leases_lost_total"), 1);
}

TEST_F(FileDiscoveryTest, MakesItsFoldersForThisUserAlone) {
  const auto discovery =
      open_file_discovery({folder_.path() / "new" / "shared/"}, clock_, metrics_);

  ASSERT_TRUE(discovery.has_value()) << discovery.error().message();
  for (const char* name : {"new/shared", "new/shared/instances"}) {
    struct stat info{};
    ASSERT_EQ(::stat((folder_.path() / name).c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 0777, 0700U) << name;
  }
}

TEST_F(FileDiscoveryTest, RefusesAFolderThatOthersMayWriteTo) {
  using std::filesystem::perms;
  const std::filesystem::path root = folder_.path() / "shared";
  make_private(root / "instances");
  EXPECT_EQ(refusal(root), "");

  for (const auto& [path, mode] : {std::pair(root, perms::owner_all | perms::group_write),
                                   std::pair(root, perms::owner_all | perms::others_write),
                                   std::pair(root / "instances", perms::all | perms::sticky_bit)}) {
    std::filesystem::permissions(path, mode);
    EXPECT_THAT(refusal(root), testing::AllOf(testing::HasSubstr("invalid_argument"),
                                              testing::HasSubstr(path.string() + " belongs"),
                                              testing::HasSubstr("chmod 0700")));
    std::filesystem::permissions(path, perms::owner_all);
  }
  std::filesystem::permissions(root, perms::all | perms::sticky_bit);
  EXPECT_EQ(refusal(root), "") << "a sticky folder (/tmp) may be the one above";
}

TEST_F(FileDiscoveryTest, RefusesALinkInPlaceOfAFolder) {
  make_private(folder_.path() / "real" / "instances");
  std::filesystem::create_symlink(folder_.path() / "real", folder_.path() / "link");
  make_private(folder_.path() / "other");
  std::filesystem::create_symlink(folder_.path() / "real" / "instances",
                                  folder_.path() / "other" / "instances");

  for (const char* name : {"link", "link/", "other"}) {
    EXPECT_THAT(refusal(folder_.path() / name), testing::HasSubstr("no link")) << name;
  }
}

/// With another user's files, which only root can make.
class ForeignFilesTest : public FileDiscoveryTest {
 protected:
  static constexpr uid_t kOther = 65534;
};

TEST_F(ForeignFilesTest, AFolderOfAnotherUserIsRefusedWhateverItsMode) {
  const std::filesystem::path root = folder_.path() / "shared";
  make_private(root / "instances");
  if (::chown(root.c_str(), kOther, kOther) != 0) {
    // Not root: what this user cannot open is refused just as well.
    std::filesystem::permissions(root, std::filesystem::perms::none);
    EXPECT_NE(refusal(root), "");
    return;
  }

  EXPECT_THAT(refusal(root), testing::HasSubstr("belongs to uid 65534"));
  ASSERT_EQ(::chown(root.c_str(), ::geteuid(), ::getegid()), 0);
  ASSERT_EQ(::chown((root / "instances").c_str(), kOther, kOther), 0);
  EXPECT_THAT(refusal(root), testing::HasSubstr("instances belongs to uid 65534"));
}

TEST_F(ForeignFilesTest, ARecordOfAnotherUserIsIgnoredAndNamedOnce) {
  auto discovery = open(std::chrono::milliseconds(300));
  const std::filesystem::path foreign = file_of(make_record(6));
  testing::internal::CaptureStderr();
  write_file(folder_.path() / "draft", to_json(make_record(6)));
  const bool root = ::chown((folder_.path() / "draft").c_str(), kOther, kOther) == 0;
  if (root) {
    std::filesystem::rename(folder_.path() / "draft", foreign);
  } else {
    std::filesystem::create_symlink("/dev/null", foreign);  // no record of this user's either
  }
  auto registration = std::move(discovery->register_instance(make_record(5)).value());
  // Several looks at the folder: this one comes and goes by its lease alone.
  write_ownerless(make_record(9));
  watch_ = discovery->watch({}, shards_.shard(0), recorder_);
  ASSERT_TRUE(recorder_.wait_for("removed 9.1 ready"));

  EXPECT_THAT(discovery->list({}), ElementsAre(make_record(5)));
  EXPECT_TRUE(std::filesystem::exists(std::filesystem::symlink_status(foreign)));
  const std::string log = testing::internal::GetCapturedStderr();
  if (root) {
    EXPECT_EQ(count("stator_runtime_discovery_foreign_records_total"), 1);
    EXPECT_THAT(log, testing::HasSubstr("65534"));
    EXPECT_EQ(log.find(foreign.filename().string()), log.rfind(foreign.filename().string()));
  }
}

TEST_F(FileDiscoveryTest, ALinkOrAPipeInPlaceOfARecordIsIgnored) {
  write_file(folder_.path() / "elsewhere", to_json(make_record(6)));
  auto discovery = open();
  std::filesystem::create_symlink(folder_.path() / "elsewhere", file_of(make_record(6)));
  ASSERT_EQ(::mkfifo(file_of(make_record(7)).c_str(), 0600), 0);
  auto registration = std::move(discovery->register_instance(make_record(5)).value());

  EXPECT_THAT(discovery->list({}), ElementsAre(make_record(5)));
}

TEST_F(FileDiscoveryTest, NamesAFolderItCannotMake) {
  write_file(folder_.path() / "file", "");
  const auto failed = open_file_discovery({folder_.path() / "file"}, clock_, metrics_);
  ASSERT_FALSE(failed.has_value());
  EXPECT_EQ(failed.error().code(), Code::kIo);
  EXPECT_THAT(failed.error().message(), testing::HasSubstr("file"));
}

}  // namespace
}  // namespace stator::discovery
