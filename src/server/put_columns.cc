#include "server/put_columns.h"

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/crc32c.h"
#include "codec/rollout_header.h"

namespace forebay::server {
namespace {

constexpr int kColumnsMax = 64;

// A PutColumns whose bytes wait for room, or are being stored.
struct Job {
  Job(ServiceContext* c, v1::PutColumnsRequest r, TypedResponder<v1::PutColumnsResponse> a)
      : context(c), request(std::move(r)), responder(std::move(a)) {}
  ServiceContext* const context;
  v1::PutColumnsRequest request;
  TypedResponder<v1::PutColumnsResponse> responder;
  uint64_t footprint = 0;
};

absl::Status CheckColumn(const v1::Column& column, int index, std::string_view bytes) {
  const auto refuse = [index](const char* field, auto&&... why) {
    return absl::InvalidArgumentError(absl::StrCat("columns[", index, "].", field, ": ", why...));
  };
  if (codec::DTypeBytes(column.dtype()) == 0) return refuse("dtype", "is ", column.dtype());
  if (column.name().empty() || column.name().size() > codec::kNameBytesMax) {
    return refuse("name", "has ", column.name().size(), " bytes; 1 to ", codec::kNameBytesMax);
  }
  if (static_cast<size_t>(column.inner_size()) > codec::kInnerDimensionsMax) {
    return refuse("inner", "has ", column.inner_size(), " dimensions; the limit is ",
                  codec::kInnerDimensionsMax);
  }
  if (column.domain() != v1::DOMAIN_UNSPECIFIED && column.domain() != v1::DOMAIN_TOKEN) {
    return refuse("domain", "is ", v1::Domain_Name(column.domain()), ", must be per token");
  }
  codec::HeaderColumn shape{.name = column.name(),
                            .dtype = static_cast<uint32_t>(column.dtype()),
                            .inner_count = static_cast<uint32_t>(column.inner_size())};
  codec::FieldError error;
  if (!codec::CheckKnownColumn(shape, static_cast<size_t>(index), &error)) {
    return absl::InvalidArgumentError(absl::StrCat(error.field, ": ", error.message));
  }
  if (column.bytes() == 0) return refuse("bytes", "is 0");
  if (column.has_crc32c() && column.crc32c() != Crc32c(bytes)) {
    return refuse("crc32c", "is ", column.crc32c(), ", the bytes have ", Crc32c(bytes));
  }
  return absl::OkStatus();
}

absl::Status CheckRequest(const v1::PutColumnsRequest& request) {
  if (request.columns_size() == 0 || request.columns_size() > kColumnsMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("columns: has ", request.columns_size(), " entries; 1 to ", kColumnsMax));
  }
  const std::string_view data = request.data();
  uint64_t offset = 0;
  for (int i = 0; i < request.columns_size(); ++i) {
    const auto& column = request.columns(i);
    if (column.bytes() > data.size() - offset) {
      return absl::InvalidArgumentError(absl::StrCat("columns[", i, "].bytes: is ", column.bytes(),
                                                     ", data has ", data.size() - offset,
                                                     " bytes left"));
    }
    FOREBAY_RETURN_IF_ERROR(CheckColumn(column, i, data.substr(offset, column.bytes())));
    offset += column.bytes();
  }
  if (offset != data.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("data: has ", data.size(), " bytes, the columns say ", offset));
  }
  return absl::OkStatus();
}

void Submit(std::shared_ptr<Job> job, std::vector<PayloadId> ids) {
  const auto& request = job->request;
  ledger::PutColumns command{.generation = Generation(request.generation()),
                             .step = StepId(request.step()),
                             .revision = Revision(request.revision()),
                             .micro_batch = {.dp_rank = request.dp_rank(),
                                             .mini_batch = request.mini_batch(),
                                             .micro_batch = request.micro_batch()}};
  for (int i = 0; i < request.columns_size(); ++i) {
    const auto& column = request.columns(i);
    command.columns.push_back({.name = column.name(),
                               .dtype = static_cast<uint8_t>(column.dtype()),
                               .inner = {column.inner().begin(), column.inner().end()},
                               .payload = ids[static_cast<size_t>(i)],
                               .bytes = column.bytes()});
  }
  job->context->engine->AskLedger<ledger::StatusReply>(
      std::move(command), [job, ids](ledger::StatusReply&& reply) {
        if (!reply.status.ok()) {
          job->context->payloads->Free(ids);
          return job->responder.Fail(reply.status);
        }
        job->responder.Reply(v1::PutColumnsResponse());
      });
}

void StoreColumns(std::shared_ptr<Job> job) {
  auto* store = job->context->payloads;
  std::string_view data = job->request.data();
  std::vector<storage::PayloadBuilder> builders;
  for (const auto& column : job->request.columns()) {
    builders.emplace_back(&store->budget(), column.bytes());
    builders.back().Append(data.substr(0, column.bytes()), 0);
    data.remove_prefix(column.bytes());
  }
  auto ids = std::make_shared<std::vector<PayloadId>>(builders.size());
  store->Finish(absl::MakeSpan(builders), absl::MakeSpan(*ids),
                [job, ids](const absl::Status& status) {
                  if (!status.ok()) return job->responder.Fail(status);
                  Submit(job, *ids);
                });
}

}  // namespace

void PutColumns(ServiceContext* context, v1::PutColumnsRequest request,
                TypedResponder<v1::PutColumnsResponse> responder) {
  if (auto status = CheckRequest(request); !status.ok()) return responder.Fail(status);
  auto job = std::make_shared<Job>(context, std::move(request), std::move(responder));
  for (const auto& column : job->request.columns()) {
    job->footprint += storage::PayloadBuilder::Footprint(column.bytes());
  }
  auto& budget = context->payloads->budget();
  if (!budget.CanEverFit(job->footprint)) {
    return job->responder.Fail(absl::ResourceExhaustedError(
        absl::StrCat("data: needs ", job->footprint, " bytes of payload memory; the limit is ",
                     budget.use().bytes_max)));
  }
  if (budget.TryReserve(job->footprint)) return StoreColumns(std::move(job));
  // The memory that pushes wait for may be freed by this very step's commit alone, so a trainer
  // does not queue behind them.
  const storage::WaiterId waiter = budget.Await(job->footprint, 0, [job] { StoreColumns(job); });
  if (budget.AdmitFromReserve(waiter)) return;
  job->responder.OnCancel([job, waiter, &budget] {
    if (budget.Cancel(waiter)) {
      job->responder.Fail(
          absl::CancelledError("columns: the call ended while it waited for memory"));
    }
  });
}

}  // namespace forebay::server
