// Payloads held against their crc as they lie on the disk.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <string>
#include <vector>

#include "tests/unit/storage_segments/host.h"

namespace forebay::storage {
namespace {

using io::Fault;
using io::MemoryOperation;
using testing::AllOf;
using testing::HasSubstr;

class Checker : public testing::Test {
 protected:
  Checker() { host.Recover(); }

  std::string Check(const LiveRecord& record) {
    std::optional<absl::Status> answer;
    checker->Check(record, [&answer](absl::Status status) { answer = std::move(status); });
    host.Settle();
    return answer.has_value() ? answer->ToString() : "no answer";
  }
  std::string PathOf(PayloadId id) const {
    return "/data/segments/" +
           FileNameOf({.node = host.options.node, .number = PlaceOf(id).segment});
  }
  std::vector<LiveRecord> All(size_t most) {
    std::vector<LiveRecord> all;
    for (PayloadId after; after != PayloadId(UINT64_MAX);) {
      const auto some = host.store->LiveAfter(&after, most);
      EXPECT_LE(some.size(), most);
      all.insert(all.end(), some.begin(), some.end());
    }
    return all;
  }

  Prng prng{1};
  Host host;
  std::shared_ptr<SegmentChecker> checker = host.store->NewChecker();
};

TEST_F(Checker, EveryLivePayloadIsFoundOnceAndIsWhole) {
  std::vector<PutRef> puts;
  for (const size_t size : {1u, 100u, 5'000u, 70'000u, 3'000'000u, 17u}) {
    puts.push_back(host.Write(RandomText(prng, size)));
  }
  host.store->Free({&puts[1]->id, 1});
  for (const size_t most : {1u, 2u, 100u}) {
    const auto records = All(most);
    ASSERT_EQ(records.size(), 5u) << most;
    for (const LiveRecord& record : records) EXPECT_TRUE(host.store->Holds(record.head.id));
  }
  for (const LiveRecord& record : All(100)) EXPECT_EQ(Check(record), "OK");
  EXPECT_FALSE(host.store->Holds(puts[1]->id));
}

TEST_F(Checker, ABitThatFlippedOnTheDiskIsFoundThoughMemoryHasTheRightBytes) {
  const PutRef put = host.Write(RandomText(prng, 2'500'000));
  const LiveRecord record = All(10)[0];
  const uint64_t offset = PlaceOf(put->id).offset;
  host.disk->FlipStoredBit(PathOf(put->id), offset + kRecordHeadBytes + 2'499'999, 3);
  EXPECT_EQ(host.Read(put->id), put->bytes);
  EXPECT_THAT(Check(record), AllOf(HasSubstr("DATA_LOSS"), HasSubstr(PathOf(put->id)),
                                   HasSubstr(absl::StrCat("offset ", offset)), HasSubstr("crc")));
  host.disk->FlipStoredBit(PathOf(put->id), offset + 20, 0);
  EXPECT_THAT(Check(record), HasSubstr("record head"));
}

TEST_F(Checker, WhatFailsOnceIsReadAgain) {
  const PutRef put = host.Write(RandomText(prng, 5'000));
  const LiveRecord record = All(10)[0];
  host.disk->Inject({.operation = MemoryOperation::kRead, .error = EIO});
  EXPECT_EQ(Check(record), "OK");
  host.disk->Inject({.operation = MemoryOperation::kRead, .times = 2, .error = EIO});
  EXPECT_THAT(Check(record), AllOf(HasSubstr("DATA_LOSS"), HasSubstr("EIO")));
  EXPECT_EQ(Check(record), "OK");
}

TEST_F(Checker, APayloadThatWasFreedIsNoDamage) {
  const PutRef put = host.Write(RandomText(prng, 5'000));
  const LiveRecord record = All(10)[0];
  host.disk->FlipStoredBit(PathOf(put->id), PlaceOf(put->id).offset + 70, 0);
  host.store->Free({&put->id, 1});
  EXPECT_THAT(Check(record), HasSubstr("NOT_FOUND"));
}

}  // namespace
}  // namespace forebay::storage
