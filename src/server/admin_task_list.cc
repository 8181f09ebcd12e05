// AdminService: lists of tasks.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "forebay/v1/admin.pb.h"
#include "server/admin.h"
#include "server/page.h"
#include "server/task_names.h"
#include "server/wire_ids.h"

namespace forebay::server {
namespace {

// Tasks looked at in one visit of a loop.
constexpr size_t kLookedAtMax = 4096;
// How far a ranked list can be paged through.
constexpr uint64_t kRankedMax = 100'000;

struct Ranked {
  double pass_rate = 0;
  ShardId shard;
  shard::TaskView view;
};

void Fill(ServiceContext* context, ShardId shard, const shard::TaskView& view, v1::TaskState* out) {
  out->set_external_id(ExternalId(context->contents, view.content));
  out->set_task_id(WireTaskId(shard, view.task));
  out->set_attempts(view.rollouts);
  out->set_groups(view.groups);
  out->set_pass_a(view.pass_a);
  out->set_pass_b(view.pass_b);
  out->set_failures(view.failures);
  out->set_quarantined(view.quarantined);
  out->set_weight(view.weight);
  out->set_mean_tokens(view.mean_tokens);
  out->set_last_version(view.last_version);
  out->set_last_failure(context->failures.Get(shard, view.task));
}

using ListTasksResponder = std::shared_ptr<TypedResponder<v1::ListTasksResponse>>;

// In the order of loading.
void ListInOrder(ServiceContext* context, SourceId source, bool quarantined, uint32_t size,
                 PagePlace place, ListTasksResponder answer) {
  auto response = std::make_shared<v1::ListTasksResponse>();
  WalkPages(
      context->engine, place,
      [context, source, quarantined, size, response](node::ShardLoop& loop, uint64_t,
                                                     uint64_t* at) {
        for (size_t looked = 0; looked < kLookedAtMax && *at != UINT64_MAX; ++looked) {
          if (static_cast<uint32_t>(response->tasks_size()) == size) return false;
          for (const auto& view : loop.state().Tasks(source, at, 1)) {
            if (quarantined && !view.quarantined) continue;
            Fill(context, loop.state().shard(), view, response->add_tasks());
          }
        }
        return true;
      },
      [response, answer](std::string next) {
        response->set_page_token(std::move(next));
        answer->Reply(*response);
      });
}

// Keeps the `keep` first by `before` of all that were attempted.
template <class Before>
void ListRanked(ServiceContext* context, SourceId source, uint32_t size, uint64_t skip,
                Before before, ListTasksResponder answer) {
  auto heap = std::make_shared<std::vector<Ranked>>();
  const size_t keep = skip + size;
  WalkPages(
      context->engine, PagePlace{},
      [source, keep, before, heap](node::ShardLoop& loop, uint64_t, uint64_t* at) {
        for (auto& view : loop.state().Tasks(source, at, kLookedAtMax)) {
          if (view.groups == 0) continue;
          const double rate = view.pass_a / (view.pass_a + view.pass_b);
          heap->push_back({rate, loop.state().shard(), view});
          std::push_heap(heap->begin(), heap->end(), before);
          if (heap->size() <= keep) continue;
          std::pop_heap(heap->begin(), heap->end(), before);
          heap->pop_back();
        }
        return true;
      },
      [context, heap, before, skip, keep, answer](std::string) {
        std::sort_heap(heap->begin(), heap->end(), before);
        v1::ListTasksResponse response;
        for (size_t i = skip; i < heap->size(); ++i) {
          Fill(context, (*heap)[i].shard, (*heap)[i].view, response.add_tasks());
        }
        if (heap->size() == keep) response.set_page_token(PageToken({0, keep}));
        answer->Reply(response);
      });
}

void ListTasks(ServiceContext* context, v1::ListTasksRequest request,
               TypedResponder<v1::ListTasksResponse> responder) {
  const auto catalog = context->catalog->Get();
  const auto* source = catalog->Find(request.source());
  if (source == nullptr) {
    return responder.Fail(
        absl::NotFoundError(absl::StrCat("source: '", request.source(), "' is not a source")));
  }
  const auto size = PageSize(request.page_size());
  const auto place = ParsePageToken(request.page_token(), context->engine->shards());
  for (const auto& status : {size.status(), place.status()}) {
    if (!status.ok()) return responder.Fail(status);
  }
  auto answer = std::make_shared<TypedResponder<v1::ListTasksResponse>>(std::move(responder));
  const std::string& filter = request.filter();
  if (filter.empty() || filter == "quarantined") {
    return ListInOrder(context, source->id, !filter.empty(), *size, *place, std::move(answer));
  }
  if (filter != "hardest" && filter != "easiest" && filter != "learnable") {
    return answer->Fail(absl::InvalidArgumentError(
        absl::StrCat("filter: is '", filter.substr(0, 64),
                     "'; quarantined, hardest, easiest, learnable or ''")));
  }
  if (place->place > kRankedMax) {
    return answer->Fail(absl::InvalidArgumentError(absl::StrCat(
        "page_token: is at ", place->place, "; the limit of a ranked list is ", kRankedMax)));
  }
  // Ties by shard and index, so that pages fit together.
  const auto place_of = [](const Ranked& r) {
    return std::make_pair(r.shard.value, r.view.task.value);
  };
  // The least comes first: pass rates, or how far they are from one half.
  const auto rank = [filter](const Ranked& r) {
    if (filter == "learnable") return std::abs(r.pass_rate - 0.5);
    return filter == "hardest" ? r.pass_rate : -r.pass_rate;
  };
  ListRanked(
      context, source->id, *size, place->place,
      [place_of, rank](const Ranked& a, const Ranked& b) {
        if (rank(a) != rank(b)) return rank(a) < rank(b);
        return place_of(a) < place_of(b);
      },
      std::move(answer));
}

}  // namespace

void AddTaskListMethods(ServiceContext* context, MethodTable* methods) {
  AddAdmin(methods, context, "ListTasks", &ListTasks);
}

}  // namespace forebay::server
