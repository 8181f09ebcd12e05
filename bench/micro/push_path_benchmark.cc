// The parts of the push path without the network: decoding and checking headers, storing payloads.
//
// Figures are per rollout ("items"). The header is that of a small rollout: one sequence, one
// version run, three columns, one reward.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <string>
#include <vector>

#include "codec/rollout_header.h"
#include "codec/wire.h"
#include "storage/ram_payload_store.h"

namespace {

using forebay::PayloadId;
using forebay::codec::RolloutHeader;
using forebay::codec::WireWriter;

std::string Column(const char* name, uint32_t dtype, uint64_t bytes) {
  std::string column;
  WireWriter writer(&column);
  writer.Bytes(1, name);
  writer.Varint(2, dtype);
  writer.Varint(4, 1);
  writer.Varint(6, bytes);
  writer.Fixed(7, 0x12345678u);
  return column;
}

std::string SmallHeader() {
  std::string run, sequence, reward, header;
  WireWriter(&run).Varint(3, 12);
  WireWriter(&run).Varint(4, 8);
  WireWriter sequence_writer(&sequence);
  sequence_writer.Varint(1, 12);
  sequence_writer.Varint(2, 4);
  sequence_writer.Varint(3, 8);
  sequence_writer.Message(4, run);
  WireWriter(&reward).Bytes(1, "reward");
  WireWriter(&reward).Fixed(2, 1.0);
  WireWriter writer(&header);
  writer.Fixed(1, uint64_t{77});
  writer.Fixed(2, uint32_t{5});
  writer.Message(4, sequence);
  writer.Message(5, Column("tokens", 5, 48));
  writer.Message(5, Column("loss_mask", 1, 12));
  writer.Message(5, Column("logprobs", 11, 48));
  writer.Message(6, reward);
  writer.Varint(7, 1500);
  return header;
}

void DecodeHeader(benchmark::State& state) {
  const std::string bytes = SmallHeader();
  RolloutHeader header;
  forebay::codec::FieldError error;
  for (auto _ : state) {
    benchmark::DoNotOptimize(forebay::codec::DecodeRolloutHeader(bytes, &header, &error));
  }
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(DecodeHeader);

void CheckHeader(benchmark::State& state) {
  const std::string bytes = SmallHeader();
  RolloutHeader header;
  forebay::codec::FieldError error;
  if (!forebay::codec::DecodeRolloutHeader(bytes, &header, &error)) state.SkipWithError("header");
  for (auto _ : state) {
    benchmark::DoNotOptimize(forebay::codec::CheckRolloutHeader(header, bytes.size()).ok());
  }
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(CheckHeader);

// A frame of tiny rollouts goes in and out again.
void StoreTinyPayloads(benchmark::State& state) {
  const auto count = static_cast<size_t>(state.range(0));
  const std::string header = SmallHeader();
  const std::string columns(108, 'x');
  forebay::storage::RamPayloadStore store({});
  const uint64_t footprint =
      forebay::storage::PayloadBuilder::Footprint(header.size() + columns.size());
  std::vector<forebay::storage::PayloadBuilder> builders;
  std::vector<PayloadId> ids(count);
  for (auto _ : state) {
    builders.clear();
    if (!store.budget().TryReserve(count * footprint)) state.SkipWithError("budget");
    for (size_t i = 0; i < count; ++i) {
      auto& builder = builders.emplace_back(&store.budget(), header.size() + columns.size());
      builder.AppendHeader(header);
      builder.Append(columns, 0);
    }
    store.Finish(absl::MakeSpan(builders), absl::MakeSpan(ids), nullptr);
    store.Free(ids);
  }
  state.SetItemsProcessed(state.iterations() * static_cast<int64_t>(count));
}
BENCHMARK(StoreTinyPayloads)->Arg(64)->Arg(256);

// Copy with crc in pieces of 64 KiB, as slices come.
void StoreLargePayload(benchmark::State& state) {
  const auto bytes = static_cast<uint64_t>(state.range(0));
  const std::string slice(64 * 1024, 'x');
  forebay::storage::RamPayloadStore store({});
  const uint64_t footprint = forebay::storage::PayloadBuilder::Footprint(bytes);
  for (auto _ : state) {
    if (!store.budget().TryReserve(footprint)) state.SkipWithError("budget");
    forebay::storage::PayloadBuilder builder(&store.budget(), bytes);
    uint32_t crc = 0;
    while (builder.left() > 0) {
      const auto size = std::min<uint64_t>(builder.left(), slice.size());
      crc = builder.Append(std::string_view(slice).substr(0, size), crc);
    }
    benchmark::DoNotOptimize(crc);
    PayloadId id;
    store.Finish({&builder, 1}, {&id, 1}, nullptr);
    store.Free({id});
  }
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(bytes));
}
BENCHMARK(StoreLargePayload)->Arg(500'000)->Arg(64 << 20);

}  // namespace
