// Parts of micro-batches: against arrays that are built whole, then indexed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/prng.h"
#include "codec/conversion.h"
#include "forebay/v1/trainer.pb.h"
#include "server/grpc/fetch_plan.h"
#include "storage/ram_payload_store.h"

namespace forebay::server {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct Shape {
  const char* name;
  v1::DType dtype;
  v1::Domain domain;
  std::vector<uint32_t> inner;
  double missing = 0;
};

const std::vector<Shape> kShapes = {
    {"tokens", v1::DTYPE_U32, v1::DOMAIN_TOKEN, {}},
    {"loss_mask", v1::DTYPE_U8, v1::DOMAIN_TOKEN, {}},
    {"logprobs", v1::DTYPE_F32, v1::DOMAIN_TOKEN, {}},
    {"entropy", v1::DTYPE_F32, v1::DOMAIN_RESPONSE_TOKEN, {2}},
    {"score", v1::DTYPE_F64, v1::DOMAIN_SEQUENCE, {3}},
    {"text", v1::DTYPE_U8, v1::DOMAIN_BLOB, {}},
    {"routed_experts", v1::DTYPE_I16, v1::DOMAIN_TOKEN_BUT_LAST, {5, 3}, -1},
};

uint64_t RowBytes(const Shape& shape) {
  uint64_t bytes = codec::DTypeBytes(shape.dtype);
  for (const uint32_t size : shape.inner) bytes *= size;
  return bytes;
}

// A micro-batch in a store, and its columns' rows by sequence.
class Batch {
 public:
  explicit Batch(uint64_t seed) : prng_(seed) {
    const uint64_t rollouts = 1 + prng_.Below(3);
    for (uint64_t r = 0; r < rollouts; ++r) AddRollout();
    uint64_t tokens = 0;
    for (const auto& slot : view_.slots) tokens += slot.tokens;
    view_.padded_tokens = (tokens + 23) / 24 * 24;
    std::string written(tokens * 4, '\0');
    for (char& byte : written) byte = static_cast<char>(prng_.Next());
    size_t at = 0;
    for (size_t s = 0; s < view_.slots.size(); ++s) {
      rows_[s]["old_logprobs"] = Split(written.substr(at, view_.slots[s].tokens * 4), 4);
      at += view_.slots[s].tokens * 4;
    }
    view_.written.push_back({.name = "old_logprobs",
                             .dtype = v1::DTYPE_F32,
                             .payload = Store("", written),
                             .bytes = written.size()});
  }

  absl::StatusOr<FetchPlan> Plan(const v1::FetchRequest& request) {
    std::vector<storage::PayloadView> held;
    EXPECT_TRUE(store_.Open(PayloadsOf(request, view_), &held).ok());
    return planner_.Plan(request, view_, held);
  }
  // As a client gets them.
  absl::Status Fetch(const v1::FetchRequest& request, v1::MicroBatchLayout* layout,
                     std::vector<std::string>* columns) {
    auto plan = Plan(request);
    if (!plan.ok()) return plan.status();
    EXPECT_TRUE(layout->ParseFromString(plan->layout));
    std::string data;
    for (const FetchPiece& piece : plan->pieces) {
      std::string bytes(piece.size, '\0');
      piece.Read(0, piece.size, bytes.data());
      data += bytes;
    }
    EXPECT_EQ(data.size(), plan->bytes);
    size_t at = 0;
    for (const auto& column : layout->columns()) {
      columns->push_back(data.substr(at, column.bytes()));
      at += column.bytes();
    }
    EXPECT_EQ(at, data.size());
    return absl::OkStatus();
  }

  using Rows = std::vector<std::string>;
  const FetchView& view() const { return view_; }
  const Rows& rows(size_t slot, const std::string& column) const { return *FindRows(slot, column); }
  // Null if the rollout lacks the column.
  const Rows* FindRows(size_t slot, const std::string& column) const {
    const auto it = rows_[slot].find(column);
    return it == rows_[slot].end() ? nullptr : &it->second;
  }

 private:
  static Rows Split(const std::string& bytes, size_t row) {
    Rows rows;
    for (size_t at = 0; at < bytes.size(); at += row) rows.push_back(bytes.substr(at, row));
    return rows;
  }
  PayloadId Store(const std::string& header, const std::string& payload) {
    const uint64_t size = header.size() + payload.size();
    EXPECT_TRUE(store_.budget().TryReserve(storage::PayloadBuilder::Footprint(size)));
    storage::PayloadBuilder builder(&store_.budget(), size);
    if (!header.empty()) builder.AppendHeader(header);
    builder.Append(payload, 0);
    PayloadId id;
    store_.Finish({&builder, 1}, {&id, 1}, nullptr);
    return id;
  }
  void AddRollout() {
    v1::RolloutHeader header;
    const size_t first = view_.slots.size();
    const uint64_t sequences = 1 + prng_.Below(2);
    for (uint32_t s = 0; s < sequences; ++s) {
      auto* sequence = header.add_sequences();
      sequence->set_tokens(static_cast<uint32_t>(1 + prng_.Below(30)));
      sequence->set_prompt_tokens(static_cast<uint32_t>(prng_.Below(sequence->tokens())));
      view_.slots.push_back({.rollout = RolloutId(7),
                             .sequence = s,
                             .tokens = sequence->tokens(),
                             .prompt_tokens = sequence->prompt_tokens(),
                             .version = 3,
                             .mask_below = prng_.Below(4) == 0 ? UINT32_MAX : 0});
      rows_.emplace_back();
    }
    std::string payload;
    for (const Shape& shape : kShapes) {
      if (shape.missing != 0 && prng_.Below(3) == 0) continue;  // its rollout lacks it
      auto* column = header.add_columns();
      column->set_name(shape.name);
      column->set_dtype(shape.dtype);
      column->set_domain(shape.domain);
      column->set_missing(shape.missing);
      for (const uint32_t size : shape.inner) column->add_inner(size);
      const size_t begin = payload.size();
      for (uint32_t s = 0; s < sequences; ++s) {
        const auto& sequence = header.sequences(static_cast<int>(s));
        uint64_t rows = sequence.tokens();
        if (shape.domain == v1::DOMAIN_RESPONSE_TOKEN) rows -= sequence.prompt_tokens();
        if (shape.domain == v1::DOMAIN_TOKEN_BUT_LAST) rows -= 1;
        if (shape.domain == v1::DOMAIN_SEQUENCE) rows = 1;
        std::string bytes(rows * RowBytes(shape), '\0');
        for (char& byte : bytes) byte = static_cast<char>(prng_.Next());
        if (shape.domain == v1::DOMAIN_BLOB) column->add_sequence_bytes(bytes.size());
        rows_[first + s][shape.name] = Split(bytes, RowBytes(shape));
        payload += bytes;
      }
      column->set_bytes(payload.size() - begin);
    }
    const PayloadId id = Store(header.SerializeAsString(), payload);
    for (size_t s = first; s < view_.slots.size(); ++s) view_.slots[s].payload = id;
  }

  storage::RamPayloadStore store_{storage::RamPayloadStoreOptions()};
  FetchPlanner planner_;
  FetchView view_;
  std::vector<std::map<std::string, Rows>> rows_;
  Prng prng_;
};

// Row of a sequence and column as the request wants it, before parts and dtype.
std::string NaiveRow(const Batch& batch, const Shape& shape, size_t slot, uint64_t position,
                     bool shifted) {
  const std::string zero(RowBytes(shape), '\0');
  const ledger::Slot& s = batch.view().slots[slot];
  const uint64_t from = position + (shifted ? 1 : 0);
  if (from >= s.tokens) return zero;
  if (std::string(shape.name) == "loss_mask" && s.mask_below > 0) return zero;
  const Batch::Rows* const rows = batch.FindRows(slot, shape.name);
  if (rows != nullptr && from < rows->size()) return (*rows)[from];
  return std::string(RowBytes(shape), '\xff');  // -1
}

std::string NaivePart(const Shape& shape, const v1::ColumnSlice* slice, const std::string& row) {
  if (slice == nullptr) return row;
  const uint32_t width = codec::DTypeBytes(shape.dtype);
  const codec::Conversion* const conversion = codec::FindConversion(
      static_cast<codec::DType>(shape.dtype), static_cast<codec::DType>(slice->dtype()));
  std::string out;
  for (size_t at = 0; at < row.size(); at += width) {
    uint64_t index = at / width;
    bool in = true;
    for (size_t d = shape.inner.size(); d-- > 0; index /= shape.inner[d]) {
      const auto i = static_cast<uint32_t>(index % shape.inner[d]);
      if (static_cast<int>(d) >= slice->dimensions_size()) continue;
      const auto& ranges = slice->dimensions(static_cast<int>(d)).ranges();
      const auto has = [i](const auto& range) { return i >= range.begin() && i < range.end(); };
      in = in && (ranges.empty() || std::any_of(ranges.begin(), ranges.end(), has));
    }
    if (!in) continue;
    if (conversion == nullptr) {
      out += row.substr(at, width);
      continue;
    }
    std::string value(conversion->to_bytes, '\0');
    conversion->convert(row.data() + at, value.data(), 1);
    out += value;
  }
  return out;
}

struct Asked {
  v1::FetchRequest request;
  std::vector<Shape> shapes;                   // by column
  std::vector<const v1::ColumnSlice*> slices;  // by column; null: none
};

void AddSlice(Prng* prng, const Shape& shape, v1::ColumnSlice* slice) {
  for (const uint32_t size : shape.inner) {
    auto* ranges = slice->add_dimensions();
    for (uint32_t at = 0; at < size && prng->Below(4) > 0;) {
      const auto begin = static_cast<uint32_t>(at + prng->Below(2));
      const auto end = static_cast<uint32_t>(begin + 1 + prng->Below(2));
      if (end > size) break;
      auto* range = ranges->add_ranges();
      range->set_begin(begin);
      range->set_end(end);
      at = end;
    }
  }
  const std::map<v1::DType, v1::DType> becomes = {{v1::DTYPE_F32, v1::DTYPE_BF16},
                                                  {v1::DTYPE_F64, v1::DTYPE_F32},
                                                  {v1::DTYPE_I16, v1::DTYPE_I32},
                                                  {v1::DTYPE_U32, v1::DTYPE_I64},
                                                  {v1::DTYPE_U8, v1::DTYPE_U8}};
  if (prng->Below(2) == 0) slice->set_dtype(becomes.at(shape.dtype));
  const bool by_token =
      shape.domain == v1::DOMAIN_TOKEN || shape.domain == v1::DOMAIN_TOKEN_BUT_LAST;
  if (by_token && prng->Below(2) == 0) slice->set_alignment(v1::MASK_ALIGNMENT_PREDICTING);
}

Asked RandomRequest(Prng* prng) {
  Asked asked;
  asked.request.set_revision(1);
  asked.request.set_fill_missing(true);
  std::vector<Shape> shapes = kShapes;
  shapes.push_back({"old_logprobs", v1::DTYPE_F32, v1::DOMAIN_TOKEN, {}});
  asked.request.mutable_slices()->Reserve(static_cast<int>(shapes.size()));
  for (const Shape& shape : shapes) {
    if (prng->Below(3) == 0) continue;
    asked.shapes.push_back(shape);
    asked.slices.push_back(nullptr);
    asked.request.add_columns(shape.name);
    if (shape.domain == v1::DOMAIN_BLOB || prng->Below(4) == 0) continue;
    auto* slice = asked.request.add_slices();
    if (prng->Below(3) == 0) {  // under another name
      slice->set_source(shape.name);
      asked.request.mutable_columns()->rbegin()->append("2");
    }
    slice->set_column(*asked.request.columns().rbegin());
    AddSlice(prng, shape, slice);
    asked.slices.back() = slice;
  }
  if (asked.shapes.empty()) return RandomRequest(prng);
  if (prng->Below(3) > 0) {
    auto* context = asked.request.mutable_context();
    context->set_order(static_cast<v1::ContextOrder>(1 + prng->Below(3)));
    context->set_size(static_cast<uint32_t>(1 + prng->Below(4)));
    context->set_rank(static_cast<uint32_t>(prng->Below(context->size())));
  }
  return asked;
}

// Which rows the answer has: (slot, position), from the layout; the tests of SliceTokens say that
// these are the right ones.
std::vector<std::pair<size_t, uint64_t>> RowsOf(const Batch& batch,
                                                const v1::MicroBatchLayout& layout) {
  std::vector<std::pair<size_t, uint64_t>> rows;
  if (layout.has_context()) {
    for (const auto& span : layout.spans()) {
      for (uint64_t at = span.begin(); at < span.end(); ++at)
        rows.emplace_back(span.sequence(), at);
    }
    return rows;
  }
  for (size_t s = 0; s < batch.view().slots.size(); ++s) {
    for (uint64_t at = 0; at < batch.view().slots[s].tokens; ++at) rows.emplace_back(s, at);
  }
  while (rows.size() < layout.padded_tokens()) rows.emplace_back(batch.view().slots.size(), 0);
  return rows;
}

TEST(FetchSlice, GivesWhatIndexingWholeArraysGives) {
  for (uint64_t seed = 0; seed < 1500; ++seed) {
    Batch batch(seed);
    Prng prng(seed + 77);
    const Asked asked = RandomRequest(&prng);
    v1::MicroBatchLayout layout;
    std::vector<std::string> columns;
    const absl::Status fetched = batch.Fetch(asked.request, &layout, &columns);
    if (!fetched.ok()) {  // of columns that no rollout has there is nothing to fill
      ASSERT_THAT(std::string(fetched.message()), HasSubstr("no rollout of the micro-batch has"));
      continue;
    }
    const auto rows = RowsOf(batch, layout);
    ASSERT_EQ(rows.size(), layout.padded_tokens());
    for (size_t c = 0; c < columns.size(); ++c) {
      const Shape& shape = asked.shapes[c];
      const v1::ColumnSlice* const slice = asked.slices[c];
      const bool shifted = slice != nullptr && slice->alignment() == v1::MASK_ALIGNMENT_PREDICTING;
      const size_t slots = batch.view().slots.size();
      std::string expected;
      if (shape.domain == v1::DOMAIN_SEQUENCE || shape.domain == v1::DOMAIN_BLOB) {
        for (size_t s = 0; s < slots; ++s) {
          for (const std::string& row : batch.rows(s, shape.name)) {
            expected += NaivePart(shape, slice, row);
          }
        }
      } else {
        for (const auto& [s, position] : rows) {
          const uint64_t prompt = s < slots ? batch.view().slots[s].prompt_tokens : 0;
          if (shape.domain == v1::DOMAIN_RESPONSE_TOKEN) {
            const bool in =
                s < slots && position >= prompt && position < batch.view().slots[s].tokens;
            if (in) {
              const auto& response = batch.rows(s, shape.name);
              expected += NaivePart(shape, slice, response[position - prompt]);
            }
            continue;
          }
          const std::string row = s == slots ? std::string(RowBytes(shape), '\0')
                                             : NaiveRow(batch, shape, s, position, shifted);
          expected += NaivePart(shape, slice, row);
        }
      }
      ASSERT_EQ(columns[c], expected) << "seed " << seed << "\n" << asked.request.DebugString();
    }
  }
}

TEST(FetchSlice, SendsNoMoreThanIsAskedFor) {
  Batch batch(3);
  v1::FetchRequest request;
  request.add_columns("routed_experts");
  request.set_fill_missing(true);
  const auto whole = batch.Plan(request);
  ASSERT_TRUE(whole.ok()) << whole.status();
  auto* slice = request.add_slices();
  slice->set_column("routed_experts");
  auto* range = slice->add_dimensions()->add_ranges();
  range->set_begin(1);
  range->set_end(2);
  const auto layer = batch.Plan(request);
  ASSERT_TRUE(layer.ok()) << layer.status();
  EXPECT_EQ(layer->bytes * 5, whole->bytes);
  request.mutable_context()->set_order(v1::CONTEXT_ORDER_ZIGZAG);
  request.mutable_context()->set_size(4);
  const auto share = batch.Plan(request);
  ASSERT_TRUE(share.ok()) << share.status();
  EXPECT_EQ(share->bytes * 20, whole->bytes);
}

TEST(FetchSlice, LabelsAreTheTokensOneAhead) {
  Batch batch(4);
  v1::FetchRequest request;
  request.add_columns("tokens");
  request.add_columns("labels");
  auto* slice = request.add_slices();
  slice->set_column("labels");
  slice->set_source("tokens");
  slice->set_alignment(v1::MASK_ALIGNMENT_PREDICTING);
  v1::MicroBatchLayout layout;
  std::vector<std::string> columns;
  const absl::Status fetched = batch.Fetch(request, &layout, &columns);
  ASSERT_TRUE(fetched.ok()) << fetched;
  ASSERT_EQ(columns[0].size(), columns[1].size());
  for (int s = 0; s + 1 < layout.cu_seqlens_size(); ++s) {
    const auto begin = static_cast<size_t>(layout.cu_seqlens(s)) * 4;
    const auto end = static_cast<size_t>(layout.cu_seqlens(s + 1)) * 4;
    EXPECT_EQ(columns[1].substr(begin, end - begin),
              columns[0].substr(begin + 4, end - begin - 4) + std::string(4, '\0'));
  }
}

TEST(FetchSlice, RefusalsNameTheFieldAndTheLimit) {
  Batch batch(5);
  const auto refused = [&](auto change) {
    v1::FetchRequest request;
    for (const char* name : {"tokens", "logprobs", "routed_experts", "text", "entropy"}) {
      request.add_columns(name);
    }
    request.set_fill_missing(true);
    auto* slice = request.add_slices();
    slice->set_column("routed_experts");
    change(&request, slice);
    const auto plan = batch.Plan(request);
    EXPECT_EQ(plan.status().code(), absl::StatusCode::kInvalidArgument) << plan.status();
    return std::string(plan.status().message());
  };
  const auto add_range = [](v1::ColumnSlice* slice, uint32_t begin, uint32_t end) {
    auto* range = slice->add_dimensions()->add_ranges();
    range->set_begin(begin);
    range->set_end(end);
  };
  using R = v1::FetchRequest;
  using S = v1::ColumnSlice;
  EXPECT_THAT(refused([&](R*, S* s) { add_range(s, 3, 6); }),
              HasSubstr("column 'routed_experts': dimensions[0].ranges[0]: 3 to 6, must be a range "
                        "within 0 to 5"));
  EXPECT_THAT(refused([](R*, S* s) { s->set_column("values"); }),
              HasSubstr("slices[0].column: 'values' is none of columns"));
  EXPECT_THAT(refused([](R* r, S*) { r->add_slices()->set_column("routed_experts"); }),
              HasSubstr("slices[1].column: 'routed_experts' has a slice already, at most 1"));
  EXPECT_THAT(refused([](R* r, S*) {
                for (int i = 0; i < 5; ++i) r->add_slices();
              }),
              HasSubstr("slices: 6, at most one a column, 5"));
  EXPECT_THAT(refused([](R*, S* s) {
                for (int i = 0; i < 5; ++i) s->add_dimensions();
              }),
              HasSubstr("slices[0].dimensions: 5, at most 4"));
  EXPECT_THAT(refused([](R*, S* s) {
                auto* ranges = s->add_dimensions();
                for (int i = 0; i < 257; ++i) ranges->add_ranges();
              }),
              HasSubstr("slices[0].dimensions[0].ranges: 257, at most 256"));
  EXPECT_THAT(refused([](R*, S* s) { s->set_dtype(v1::DTYPE_U8); }),
              HasSubstr("there is no conversion from DTYPE_I16 to DTYPE_U8"));
  EXPECT_THAT(refused([](R*, S* s) { s->set_dtype(static_cast<v1::DType>(40)); }),
              HasSubstr("slices[0].dtype: 40, from 1 to 13"));
  EXPECT_THAT(refused([](R*, S* s) { s->set_alignment(static_cast<v1::MaskAlignment>(3)); }),
              HasSubstr("slices[0].alignment: 3, at most 2"));
  EXPECT_THAT(refused([](R*, S* s) {
                s->set_column("entropy");
                s->set_alignment(v1::MASK_ALIGNMENT_PREDICTING);
              }),
              HasSubstr("column 'entropy': alignment: its rows are not those of tokens"));
  EXPECT_THAT(refused([&](R*, S* s) {
                s->set_column("text");
                s->set_dtype(v1::DTYPE_I16);
              }),
              HasSubstr("column 'text': it is a blob"));
  EXPECT_THAT(refused([](R* r, S*) { r->mutable_context()->set_size(2); }),
              HasSubstr("context.order: 0, from 1 to 3"));
  EXPECT_THAT(refused([](R* r, S*) {
                r->mutable_context()->set_order(v1::CONTEXT_ORDER_ZIGZAG);
                r->mutable_context()->set_size(2);
                r->mutable_context()->set_rank(2);
              }),
              HasSubstr("context.rank: 2, below context.size, 2"));
}

TEST(FetchSlice, AColumnOfOwnLengthsPerTokenHasNoShare) {
  storage::RamPayloadStore store{storage::RamPayloadStoreOptions()};
  v1::RolloutHeader header;
  header.add_sequences()->set_tokens(4);
  auto* column = header.add_columns();
  column->set_name("top_p");
  column->set_dtype(v1::DTYPE_I32);
  column->set_domain(v1::DOMAIN_RAGGED);
  column->set_bytes(5 * 4 + 8);
  const std::string head = header.SerializeAsString();
  ASSERT_TRUE(store.budget().TryReserve(storage::PayloadBuilder::Footprint(head.size() + 28)));
  storage::PayloadBuilder builder(&store.budget(), head.size() + 28);
  builder.AppendHeader(head);
  builder.Append(std::string(28, '\1'), 0);
  PayloadId id;
  store.Finish({&builder, 1}, {&id, 1}, nullptr);
  FetchView view;
  view.slots.push_back({.payload = id, .tokens = 4});
  view.padded_tokens = 4;
  v1::FetchRequest request;
  request.add_columns("top_p");
  std::vector<storage::PayloadView> held;
  ASSERT_TRUE(store.Open({id}, &held).ok());
  ASSERT_TRUE(FetchPlanner().Plan(request, view, held).ok());
  request.mutable_context()->set_order(v1::CONTEXT_ORDER_CONTIGUOUS);
  request.mutable_context()->set_size(2);
  EXPECT_THAT(std::string(FetchPlanner().Plan(request, view, held).status().message()),
              HasSubstr("context: column 'top_p' is ragged"));
  request.clear_context();
  auto* slice = request.add_slices();
  slice->set_column("top_p");
  slice->add_dimensions();
  EXPECT_THAT(std::string(FetchPlanner().Plan(request, view, held).status().message()),
              HasSubstr("column 'top_p': it is ragged, of which there is neither"));
}

TEST(FetchSlice, ASizeThatDoesNotDivideTheRowsIsRefused) {
  Batch batch(6);
  v1::FetchRequest request;
  request.add_columns("tokens");
  request.mutable_context()->set_order(v1::CONTEXT_ORDER_CONTIGUOUS);
  request.mutable_context()->set_size(7);
  const absl::Status status = batch.Plan(request).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("rows are not divided by 7; a step with a pad_multiple of 7"));
}

TEST(FetchSlice, OfAFillerIsEmptyOnEveryRank) {
  v1::FetchRequest request;
  request.add_columns("tokens");
  request.mutable_context()->set_order(v1::CONTEXT_ORDER_ZIGZAG);
  request.mutable_context()->set_size(4);
  request.mutable_context()->set_rank(3);
  auto plan = FetchPlanner().Plan(request, FetchView(), {});
  ASSERT_TRUE(plan.ok()) << plan.status();
  v1::MicroBatchLayout layout;
  ASSERT_TRUE(layout.ParseFromString(plan->layout));
  EXPECT_EQ(plan->bytes, 0u);
  EXPECT_THAT(layout.cu_seqlens(), ElementsAre(0));
  EXPECT_EQ(layout.padded_tokens(), 0u);
}

}  // namespace
}  // namespace forebay::server
