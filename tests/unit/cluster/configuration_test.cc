#include "cluster/configuration.h"

#include <gtest/gtest.h>

#include "tests/unit/cluster/make.h"

namespace forebay::cluster {
namespace {

TEST(Configuration, ComesBackAsItWas) {
  const Configuration c = Make(3, 2, {1, 2}, {3});
  const auto decoded = DecodeConfiguration(EncodeConfiguration(c));
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_EQ(*decoded, c);
  EXPECT_EQ(Text(c),
            "epoch 3, primary 2, in sync 1 2, replicas 1:1 2:1 3:1, leaving 3, at least 2");
}

TEST(Configuration, BytesThatAreNoneAreRefused) {
  const std::string bytes = EncodeConfiguration(Make(3, 2, {1, 2}));
  for (size_t size = 0; size < bytes.size(); ++size)
    EXPECT_FALSE(DecodeConfiguration(bytes.substr(0, size)).ok());
  EXPECT_FALSE(DecodeConfiguration(bytes + "x").ok());
  EXPECT_FALSE(DecodeConfiguration("\x7f" + bytes.substr(1)).ok());
}

TEST(Configuration, ValidOnlyIfItSaysOneThing) {
  EXPECT_TRUE(Validate(Make(3, 2, {1, 2})).ok());
  EXPECT_TRUE(Validate(Make(0, 0, {1, 2})).ok());
  EXPECT_FALSE(Validate(Make(0, 2, {1, 2})).ok());  // a primary without an epoch
  EXPECT_FALSE(Validate(Make(3, 0, {1, 2})).ok());
  EXPECT_FALSE(Validate(Make(3, 3, {1, 2})).ok());  // that is out of sync
  EXPECT_FALSE(Validate(Make(3, 2, {2, 1})).ok());
  EXPECT_FALSE(Validate(Make(3, 2, {2, 2})).ok());
  EXPECT_FALSE(Validate(Make(3, 2, {})).ok());
  EXPECT_FALSE(Validate(Make(3, 2, {2, 4})).ok());  // without a replica
  EXPECT_FALSE(Validate(Make(3, 2, {1, 2}, {4})).ok());
  EXPECT_FALSE(Validate(Make(3, 2, {1, 2}, {3, 1})).ok());
  Configuration c = Make(3, 2, {1, 2});
  c.min_in_sync = 0;
  EXPECT_FALSE(Validate(c).ok());
  c.min_in_sync = 4;
  EXPECT_FALSE(Validate(c).ok());
  c = Make(3, 2, {1, 2});
  c.incarnations[NodeId(0)] = Incarnation(1);
  EXPECT_FALSE(Validate(c).ok());
}

}  // namespace
}  // namespace forebay::cluster
