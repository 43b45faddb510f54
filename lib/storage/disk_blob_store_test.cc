#include "lib/storage/disk_blob_store.h"

#include <filesystem>
#include <fstream>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lib/policy/policy_state_codec.h"
#include "lib/policy/policy_state_tier.h"
#include "lib/policy/testing.h"
#include "lib/policy/testing/random_state.h"
#include "lib/policy/testing/same_bits.h"
#include "lib/storage/testing.h"
#include "lib/storage/testing/scratch_directory.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe::storage {
namespace {

TEST(DiskBlobStoreTest, GivesBackWhatWasPutLast) {
  const ScratchDirectory scratch;
  DiskBlobStore store(scratch.path() + "/a/cache");
  EXPECT_EQ(store.Get("one").status().code(), absl::StatusCode::kNotFound);
  EXPECT_TRUE(store.Delete("one").ok());
  const std::string zeros("\0\n\xff", 3);
  ASSERT_TRUE(store.Put("one", "first").ok());
  ASSERT_TRUE(store.Put("one", zeros).ok());
  ASSERT_TRUE(store.Put("two", "").ok());
  EXPECT_EQ(*store.Get("one"), zeros);
  EXPECT_EQ(*store.Get("two"), "");
  ASSERT_TRUE(store.Delete("one").ok());
  EXPECT_EQ(store.Get("one").status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(*FileSystem::Posix().List(store.folder()), testing::ElementsAre("two.blob"));
  ASSERT_TRUE(store.Clear().ok());
  EXPECT_FALSE(std::filesystem::exists(store.folder()));
  EXPECT_TRUE(std::filesystem::exists(scratch.path() + "/a"));
  EXPECT_TRUE(store.Clear().ok());
}

TEST(DiskBlobStoreTest, MakesNothingBeforeTheFirstPut) {
  const ScratchDirectory scratch;
  DiskBlobStore store(scratch.path() + "/cache");
  EXPECT_FALSE(store.Get("one").ok());
  EXPECT_FALSE(std::filesystem::exists(store.folder()));
}

TEST(DiskBlobStoreTest, KeysNeverLeaveTheFolder) {
  const ScratchDirectory scratch;
  DiskBlobStore store(scratch.path() + "/cache");
  for (const char* key : {"../x", "", "a/b", "."}) {
    EXPECT_EQ(store.Put(key, "x").code(), absl::StatusCode::kInvalidArgument) << key;
    EXPECT_EQ(store.Get(key).status().code(), absl::StatusCode::kInvalidArgument) << key;
    EXPECT_EQ(store.Delete(key).code(), absl::StatusCode::kInvalidArgument) << key;
  }
  EXPECT_TRUE(std::filesystem::is_empty(scratch.path()));
}

// Every changing operation of a Put fails once: the old bytes stay, or the new ones are whole.
TEST(DiskBlobStoreTest, AFullDiskLosesNothing) {
  for (const bool crash : {false, true}) {
    for (int fail_at = 0;; ++fail_at) {
      const ScratchDirectory scratch;
      const std::string folder = scratch.path() + "/cache";
      ASSERT_TRUE(DiskBlobStore(folder).Put("one", "old").ok());
      FaultyFileSystem fs(fail_at, crash);
      const absl::Status put = DiskBlobStore(folder, fs).Put("one", "new bytes");
      const std::string now = *DiskBlobStore(folder).Get("one");
      if (put.ok()) {
        EXPECT_EQ(now, "new bytes");
        EXPECT_GE(fail_at, 4) << "remove, write, rename, sync";
        break;
      }
      EXPECT_EQ(put.code(), absl::StatusCode::kResourceExhausted);
      EXPECT_THAT(std::string(put.message()), testing::HasSubstr("policy map cache"));
      EXPECT_TRUE(now == "old" || now == "new bytes") << now;
    }
  }
}

TEST(DiskBlobStoreTest, AFolderThatVanishedIsMadeAgain) {
  const ScratchDirectory scratch;
  DiskBlobStore store(scratch.path() + "/cache");
  ASSERT_TRUE(store.Put("one", "1").ok());
  std::filesystem::remove_all(store.folder());
  EXPECT_EQ(store.Get("one").status().code(), absl::StatusCode::kNotFound);
  ASSERT_TRUE(store.Put("two", "2").ok());
  EXPECT_EQ(*store.Get("two"), "2");
}

TEST(DiskBlobStoreTest, AFolderThatCannotBeMadeIsAClearError) {
  const ScratchDirectory scratch;
  std::ofstream(scratch.path() + "/file") << "in the way";
  DiskBlobStore store(scratch.path() + "/file/cache");
  const absl::Status put = store.Put("one", "1");
  EXPECT_FALSE(put.ok());
  EXPECT_THAT(std::string(put.message()), testing::HasSubstr("file/cache\": make directory"));
  EXPECT_EQ(store.Get("one").status().code(), absl::StatusCode::kNotFound);
}

/// Residents are PolicyStates themselves.
class SameForm final : public policy::ResidentForm {
 public:
  absl::StatusOr<policy::PolicyTier::Value> FromState(policy::PolicySlot, const policy::PolicyState& state) override {
    return policy::PolicyTier::Value(std::make_shared<policy::PolicyState>(state));
  }
  policy::PolicyState ToState(policy::PolicySlot, const policy::PolicyTier::Value& value) override {
    return *static_cast<const policy::PolicyState*>(value.get());
  }
  int64_t Bytes(const policy::PolicyTier::Value&) const override { return 1; }
};

// What the tier makes of real files: bits that rot, files that are cut or gone, and a folder that vanishes.
TEST(DiskBlobStoreTest, DamagedFilesAreTheLossOfTheirPolicyAlone) {
  const ScratchDirectory scratch;
  DiskBlobStore store(scratch.path() + "/cache");
  SameForm form;
  std::vector<policy::PolicySpec> specs;
  for (int p = 0; p < 4; ++p) {
    specs.push_back(policy::SmallSpecForTesting());
    specs.back().id = policy::PolicyId(absl::StrCat("p", p));
  }
  const auto state = [&](int32_t slot) {
    return policy::RandomState(specs[static_cast<size_t>(slot)], static_cast<uint64_t>(slot));
  };
  policy::PolicyStateTier::Deps deps{
      &store, &form, [&](policy::PolicySlot s) { return absl::StatusOr<policy::PolicyState>(state(s.value())); },
      nullptr};
  const auto tier = *policy::PolicyStateTier::Make(&specs, {0}, std::move(deps));
  for (int32_t slot = 0; slot < 4; ++slot) tier->Put(policy::PolicySlot(slot), state(slot));
  const auto path = [&](int slot) { return absl::StrCat(store.folder(), "/policy_", slot, ".blob"); };
  std::filesystem::resize_file(path(0), std::filesystem::file_size(path(0)) - 1);
  std::fstream(path(1), std::ios::in | std::ios::out | std::ios::binary).seekp(200).put('\x55');
  std::filesystem::remove(path(2));
  for (int32_t slot = 0; slot < 3; ++slot) {
    EXPECT_EQ(tier->Load(policy::PolicySlot(slot)).status().code(), absl::StatusCode::kDataLoss) << slot;
  }
  const auto whole = tier->Load(policy::PolicySlot(3));
  ASSERT_TRUE(whole.ok()) << whole.status();
  policy::ExpectSameBits(*static_cast<const policy::PolicyState*>(whole->get()), state(3));
  EXPECT_EQ(tier->Stats().lost, 3);
  std::filesystem::remove_all(store.folder());
  EXPECT_EQ(tier->Load(policy::PolicySlot(3)).status().code(), absl::StatusCode::kDataLoss);
}

}  // namespace
}  // namespace troupe::storage
