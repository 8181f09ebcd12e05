#include "server/grpc/auth.h"

#include <gtest/gtest.h>

namespace forebay::server {
namespace {

TokenAuthorizer Rules() {
  TokenAuthorizer authorizer;
  authorizer.AddToken("a-token", Role::kActor);
  authorizer.AddToken("o-token", Role::kOperator);
  authorizer.AddRule("/forebay.v1.ActorService/", Role::kActor);
  authorizer.AddRule("/forebay.v1.TrainerService/", Role::kTrainer);
  authorizer.AddKnown("/forebay.v1.ClusterService/");
  authorizer.AddOpen("/grpc.health.v1.Health/");
  return authorizer;
}

TEST(TokenAuthorizer, AsksForTheRoleOfTheMethod) {
  const TokenAuthorizer authorizer = Rules();
  EXPECT_TRUE(authorizer.Check("/forebay.v1.ActorService/Acquire", "a-token").ok());
  EXPECT_EQ(authorizer.Check("/forebay.v1.TrainerService/Fetch", "a-token").code(),
            absl::StatusCode::kPermissionDenied);
  EXPECT_TRUE(authorizer.Check("/forebay.v1.TrainerService/Fetch", "o-token").ok());
}

TEST(TokenAuthorizer, RefusesWhoIsNotKnown) {
  const TokenAuthorizer authorizer = Rules();
  for (const char* token : {"", "a-toke", "a-tokem", "a-token "}) {
    EXPECT_EQ(authorizer.Check("/forebay.v1.ActorService/Acquire", token).code(),
              absl::StatusCode::kUnauthenticated)
        << token;
  }
}

TEST(TokenAuthorizer, AnyRoleIsGoodForSomeMethods) {
  TokenAuthorizer authorizer = Rules();
  authorizer.AddToken("t-token", Role::kTrainer);
  for (const char* token : {"a-token", "t-token", "o-token"}) {
    EXPECT_TRUE(authorizer.Check("/forebay.v1.ClusterService/Watch", token).ok()) << token;
  }
  EXPECT_EQ(authorizer.Check("/forebay.v1.ClusterService/Watch", "").code(),
            absl::StatusCode::kUnauthenticated);
}

TEST(TokenAuthorizer, OpenMethodsNeedNothingOthersTheOperator) {
  const TokenAuthorizer authorizer = Rules();
  EXPECT_TRUE(authorizer.Check("/grpc.health.v1.Health/Check", "").ok());
  EXPECT_EQ(authorizer.Check("/forebay.v1.AdminService/SetConfig", "a-token").code(),
            absl::StatusCode::kPermissionDenied);
}

}  // namespace
}  // namespace forebay::server
