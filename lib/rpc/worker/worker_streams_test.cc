#include "lib/rpc/worker/worker_streams.h"

#include <algorithm>
#include <memory>
#include <vector>

#include <gtest/gtest.h>

namespace troupe::rpc {
namespace {

class Stream final : public ServedStream {
 public:
  void End(const absl::Status&) override {}
  void CheckProgress(absl::Duration) override {}
};

TEST(WorkerStreamsTest, AWorkerHasOneStream) {
  WorkerStreams streams;
  const auto first = std::make_shared<Stream>();
  const auto second = std::make_shared<Stream>();
  EXPECT_EQ(streams.Replace(sample::WorkerId(7), first), nullptr);
  EXPECT_EQ(streams.Replace(sample::WorkerId(7), first), nullptr) << "it is no older one of itself";
  EXPECT_EQ(streams.Replace(sample::WorkerId(8), second), nullptr) << "another worker's";
  EXPECT_EQ(streams.Replace(sample::WorkerId(7), second), first);
}

// A stranger joins and leaves as often as it likes, each time as another worker.
TEST(WorkerStreamsTest, StreamsThatAreGoneAreForgotten) {
  WorkerStreams streams;
  std::vector<std::shared_ptr<Stream>> kept;
  size_t most = 0;
  for (uint64_t id = 1; id <= 100000; ++id) {
    const auto stream = std::make_shared<Stream>();
    if (id % 1000 == 0) kept.push_back(stream);
    EXPECT_EQ(streams.Replace(sample::WorkerId(id), stream), nullptr);
    most = std::max(most, streams.size());
  }
  EXPECT_LE(most, 2 * kept.size() + 2);
  for (uint64_t id = 1000; id <= 100000; id += 1000) {
    EXPECT_EQ(streams.Replace(sample::WorkerId(id), std::make_shared<Stream>()), kept[id / 1000 - 1])
        << "who is there stays";
  }
}

}  // namespace
}  // namespace troupe::rpc
