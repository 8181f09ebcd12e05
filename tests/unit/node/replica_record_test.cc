// The records of a replica's log, and what a start makes of them.
#include "node/replica_record.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace forebay::node {
namespace {

using cluster::Epoch;
using replication::AppendEntry;
using replication::Entry;
using replication::LogPlace;
using replication::LogWrite;
using replication::RestartLog;
using replication::TruncateLog;
using ::testing::HasSubstr;

std::string RecordOf(decltype(LogWrite::what) what) {
  std::string record;
  EncodeLogWrite({0, std::move(what)}, &record);
  return record;
}
std::string Append(uint64_t position, uint64_t epoch, const std::string& command) {
  return RecordOf(AppendEntry{LogPosition(position), Entry{Epoch(epoch), command}});
}
std::string TakeBack(uint64_t from) { return RecordOf(TruncateLog{LogPosition(from)}); }

absl::Status Add(ReplicaRecovery* recovery, const std::vector<std::string>& records,
                 uint64_t first = 1) {
  for (const std::string& record : records) {
    if (auto status = recovery->Add(LogPosition(first++), record); !status.ok()) return status;
  }
  return absl::OkStatus();
}

TEST(ReplicaRecord, TheGoldenFileHoldsTheExampleOfTheDocument) {
  std::ifstream file(FOREBAY_GOLDEN "/replica-log-1", std::ios::binary);
  std::ostringstream all;
  all << file.rdbuf();
  std::string left = all.str();
  std::vector<std::string> records;
  while (!left.empty()) {
    uint32_t size = 0;
    ASSERT_GE(left.size(), sizeof(size));
    std::memcpy(&size, left.data(), sizeof(size));
    ASSERT_GE(left.size(), sizeof(size) + size);
    records.push_back(left.substr(sizeof(size), size));
    left.erase(0, sizeof(size) + size);
  }
  EXPECT_EQ(records, (std::vector<std::string>{Append(1, 1, ""), Append(2, 1, "a"), TakeBack(2),
                                               Append(2, 2, ""),
                                               RecordOf(RestartLog{{Epoch(2), LogPosition(2)}})}));
}

TEST(ReplicaRecord, WhatWasTakenBackIsNotThere) {
  ReplicaRecovery recovery;
  ASSERT_TRUE(Add(&recovery, {Append(1, 1, ""), Append(2, 1, "a"), Append(3, 1, "b"), TakeBack(2),
                              Append(2, 2, "")})
                  .ok());
  EXPECT_EQ(recovery.recovered().entries, (std::vector<Entry>{{Epoch(1), ""}, {Epoch(2), ""}}));
  // A snapshot of the first entry stands before the record that holds the second one.
  EXPECT_EQ(recovery.places().RecordOf(LogPosition(1), LogPosition(5)), LogPosition(4));
  EXPECT_EQ(recovery.places().RecordOf(LogPosition(2), LogPosition(5)), LogPosition(5));
}

TEST(ReplicaRecord, ASnapshotIsGoneOnFrom) {
  ReplicaRecovery recovery;
  recovery.Begin({Epoch(3), LogPosition(7)});
  // Written while the snapshot was on its way.
  ASSERT_TRUE(Add(&recovery,
                  {Append(6, 2, "x"), TakeBack(5), RecordOf(RestartLog{{Epoch(3), LogPosition(7)}}),
                   Append(8, 3, "y")},
                  20)
                  .ok());
  EXPECT_EQ(recovery.recovered().base, (LogPlace{Epoch(3), LogPosition(7)}));
  EXPECT_EQ(recovery.recovered().entries, (std::vector<Entry>{{Epoch(3), "y"}}));
  EXPECT_EQ(recovery.places().RecordOf(LogPosition(7), LogPosition(23)), LogPosition(22));
}

TEST(ReplicaRecord, WhatCannotBeIsDamage) {
  const auto message = [](const std::vector<std::string>& records, LogPlace base = {}) {
    ReplicaRecovery recovery;
    if (base.position != LogPosition()) recovery.Begin(base);
    const absl::Status status = Add(&recovery, records);
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
    return std::string(status.message());
  };
  EXPECT_THAT(message({Append(2, 1, "a")}), HasSubstr("holds entry 2, where 1 follows"));
  EXPECT_THAT(message({Append(1, 1, "a"), Append(1, 1, "b")}), HasSubstr("where 2 follows"));
  EXPECT_THAT(message({RecordOf(RestartLog{{Epoch(1), LogPosition(9)}})}),
              HasSubstr("a snapshot at entry 9, which is not there"));
  EXPECT_THAT(message({Append(5, 1, "a"), TakeBack(3)}, {Epoch(1), LogPosition(4)}),
              HasSubstr("takes back what a snapshot holds"));
  EXPECT_THAT(message({""}), HasSubstr("is of kind 0"));
  EXPECT_THAT(message({std::string(1, '\x09')}), HasSubstr("is of kind 9"));
  EXPECT_THAT(message({TakeBack(1).substr(0, 5)}), HasSubstr("is cut off"));
  EXPECT_THAT(message({Append(1, 1, "").substr(0, 12)}), HasSubstr("is cut off"));
}

TEST(ReplicaRecord, PlacesForgetWhatASnapshotHolds) {
  EntryPlaces places;
  for (uint64_t i = 1; i <= 5; ++i) places.Append(LogPosition(i), LogPosition(10 + i));
  places.Forget(LogPosition(2));
  EXPECT_EQ(places.RecordOf(LogPosition(2), LogPosition(15)), LogPosition(12));
  EXPECT_EQ(places.last_entry(), LogPosition(5));
  places.TruncateFrom(LogPosition(4));
  EXPECT_EQ(places.last_entry(), LogPosition(3));
  EXPECT_EQ(places.RecordOf(LogPosition(3), LogPosition(20)), LogPosition(20));
  places.Forget(LogPosition(9));
  EXPECT_EQ(places.last_entry(), LogPosition(9));
}

TEST(ReplicaRecord, HeadsAndIdentitiesComeBack) {
  std::string head = EncodeSnapshotHead({Epoch(4), LogPosition(9)}) + "state";
  std::string_view left = head;
  LogPlace base;
  ASSERT_TRUE(DecodeSnapshotHead(&left, &base).ok());
  EXPECT_EQ(base, (LogPlace{Epoch(4), LogPosition(9)}));
  EXPECT_EQ(left, "state");
  head[0] = 2;
  left = head;
  EXPECT_EQ(DecodeSnapshotHead(&left, &base).code(), absl::StatusCode::kDataLoss);
  left = "short";
  EXPECT_EQ(DecodeSnapshotHead(&left, &base).code(), absl::StatusCode::kDataLoss);

  ReplicaIdentity identity;
  ASSERT_TRUE(DecodeReplicaIdentity(EncodeReplicaIdentity({2, 7, 3}), &identity).ok());
  EXPECT_EQ(identity.node, 2u);
  EXPECT_EQ(identity.incarnation, 7u);
  EXPECT_EQ(identity.kept_since, 3u);
  for (const char* wrong : {"", "node: 1\n", "node: 1\nincarnation: 1\nkept_since: 2\n",
                            "node: 0\nincarnation: 1\nkept_since: 1\n", "else: 1\n",
                            "node: 1\nincarnation: x\nkept_since: 1\n"}) {
    EXPECT_EQ(DecodeReplicaIdentity(wrong, &identity).code(), absl::StatusCode::kDataLoss) << wrong;
  }
}

}  // namespace
}  // namespace forebay::node
