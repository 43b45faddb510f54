#include "lib/base/local_path.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe::base {
namespace {

TEST(LocalPathTest, AUrlIsNoPath) {
  for (const char* url : {"s3://bucket/runs", "gs://b", "hdfs://host:9000/x", "file:///tmp/x", "S3A+x.y-z://b"}) {
    EXPECT_TRUE(IsUrl(url)) << url;
    EXPECT_EQ(CheckIsPath(url).code(), absl::StatusCode::kInvalidArgument) << url;
  }
  for (const char* path : {"", "runs", "/abs/s3://x", "a b://c", "://x", "3s://x", "unix:/tmp/x", "C:/x", "s3:/x"}) {
    EXPECT_FALSE(IsUrl(path)) << path;
    EXPECT_TRUE(CheckIsPath(path).ok()) << path;
  }
  EXPECT_THAT(std::string(CheckIsPath("s3://bucket/runs").message()),
              testing::HasSubstr("got the URL \"s3://bucket/runs\", expected a folder of this machine"));
}

}  // namespace
}  // namespace troupe::base
