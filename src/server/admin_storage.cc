// AdminService: what lies on the disks and in memory.
#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/sync.h"
#include "forebay/v1/admin.pb.h"
#include "server/admin.h"
#include "server/observation.h"
#include "server/storage_files.h"
#include "server/verdict.h"

namespace forebay::server {
namespace {

// A disk that has not said what lies on it by then is not waited for: what is known without it is
// answered.
constexpr uint64_t kFilesWaitMs = 2'000;
constexpr uint64_t kLookMs = 100;
// Looks that a hanging disk may hold.
constexpr uint64_t kLooksMax = 8;

using StorageResponder = TypedResponder<v1::GetStorageResponse>;

void Fill(const io::OperationTime& time, uint64_t count, uint64_t bytes, v1::OperationTimes* out) {
  out->set_count(count);
  out->set_bytes(bytes);
  out->set_recent_ms(time.recent_ms);
  out->set_slowest_ms(time.slowest_ms);
}

void Fill(const io::Disk& disk, const char* use, const std::string& directory, v1::DiskState* out) {
  const io::DiskUse seen = disk.use();
  out->set_use(use);
  out->set_directory(directory);
  out->set_io(std::string(disk.name()));
  Fill(seen.read_time, seen.reads, seen.read_bytes, out->mutable_reads());
  Fill(seen.write_time, seen.writes, seen.written_bytes, out->mutable_writes());
  Fill(seen.sync_time, seen.syncs, 0, out->mutable_syncs());
  out->set_errors(seen.errors);
  out->set_in_flight(seen.in_flight);
  out->set_oldest_ms(seen.oldest_ms);
}

void Fill(const storage::StoreUse& use, v1::SegmentState* out) {
  out->set_open(use.segments_open);
  out->set_sealed(use.segments_sealed);
  out->set_dead(use.segments_dead);
  out->set_file_bytes(use.file_bytes);
  out->set_live_bytes(use.live_bytes);
  out->set_pinned_bytes(use.pinned_bytes);
  out->set_waiting_bytes(use.waiting_bytes);
  out->set_failed_writes(use.failed_writes);
  out->set_abandoned_writes(use.abandoned_writes);
  out->set_damaged(use.damaged);
  out->set_evicted_bytes(use.evicted_bytes);
  out->set_read_back_bytes(use.read_back_bytes);
  out->set_cold_live_bytes(use.cold_live_bytes);
  out->set_cold_cached_bytes(use.cold_resident_bytes);
}

void Fill(const Observation& seen, v1::GetStorageResponse* out) {
  out->set_payloads(seen.payloads.payloads);
  out->set_payload_bytes(seen.payloads.payload_bytes);
  out->set_memory_bytes(seen.payloads.budget.used_bytes);
  out->set_memory_bytes_max(seen.payloads.budget.bytes_max);
  out->set_cached_bytes(seen.storage.use.resident_bytes);
  out->set_wanted_bytes(seen.storage.use.wanted_bytes);
  out->set_content_bytes(seen.contents.arena_bytes);
  out->set_kept_payloads(seen.kept_rollouts);
  out->set_kept_bytes(seen.kept_bytes);
  out->set_kept_bytes_max(seen.kept_bytes_max);
  for (const std::string& wait : StorageWaits(seen)) out->add_waits(wait);
}

void SetQueue(const node::LogQueue& queue, v1::MachineFiles* out) {
  out->set_pending_bytes(queue.bytes);
  out->set_pending_bytes_max(queue.bytes_max);
}

void Fill(const MachineFiles& files, v1::MachineFiles* out) {
  out->set_log_files(files.log_files);
  out->set_log_bytes(files.log_bytes);
  out->set_snapshots(files.snapshots);
  out->set_snapshot_bytes(files.snapshot_bytes);
  out->set_other_files(files.other_files);
  out->set_other_bytes(files.other_bytes);
}

void SetSpace(const std::optional<io::Space>& space, v1::DiskState* out) {
  if (!space.has_value()) return;
  out->set_total_bytes(space->total_bytes);
  out->set_free_bytes(space->free_bytes);
}

// Calls that wait for a disk to say what lies on it.
class StorageCalls : public std::enable_shared_from_this<StorageCalls> {
 public:
  explicit StorageCalls(ServiceContext* context) : context_(context), storage_(context->storage) {}

  void Begin(std::shared_ptr<StorageResponder> answer) {
    Observe(context_,
            [self = shared_from_this(), answer = std::move(answer)](
                const std::shared_ptr<Observation>& seen) { self->Answer(*seen, answer); });
  }

  void Tick(uint64_t now_ms) {
    std::vector<std::shared_ptr<Call>> late;
    {
      MutexLock lock(&mutex_);
      std::erase_if(calls_, [&late, now_ms](const std::shared_ptr<Call>& call) {
        if (now_ms - std::min(now_ms, call->since_ms) < kFilesWaitMs) return false;
        late.push_back(call);
        return true;
      });
    }
    for (const auto& call : late) {
      call->response->set_unknown(
          absl::StrCat("the disk did not say within ", kFilesWaitMs, " ms what lies on it"));
      call->answer->Reply(*call->response);
    }
  }

 private:
  void Answer(const Observation& seen, const std::shared_ptr<StorageResponder>& answer) {
    auto response = std::make_shared<v1::GetStorageResponse>();
    Fill(seen, response.get());
    if (storage_->segments() == nullptr) return answer->Reply(*response);
    FillFromLoops(seen, response.get());
    storage_->AskContentsQueue([self = shared_from_this(), answer, response](node::LogQueue queue) {
      SetQueue(queue, response->mutable_machines(response->machines_size() - 1));
      self->AskDisks(answer, response);
    });
  }

  struct Call {
    std::shared_ptr<StorageResponder> answer;
    std::shared_ptr<v1::GetStorageResponse> response;
    uint64_t since_ms = 0;
  };

  // What is known without asking a disk.
  void FillFromLoops(const Observation& seen, v1::GetStorageResponse* out) const {
    out->set_durable(true);
    out->set_directory(storage_->directory());
    Fill(*storage_->log_disk(), "logs", storage_->directory(), out->add_disks());
    Fill(*storage_->segment_disk(), "segments", storage_->segments()->folder(), out->add_disks());
    Fill(seen.storage.use, out->mutable_segments());
    for (const std::string& machine : storage_->sites().machines) {
      auto* files = out->add_machines();
      files->set_machine(machine);
      for (const LogFacts& log : seen.logs) {
        if (log.machine == machine) SetQueue(log.queue, files);
      }
    }
  }

  void AskDisks(std::shared_ptr<StorageResponder> answer,
                std::shared_ptr<v1::GetStorageResponse> response) {
    auto call =
        std::make_shared<Call>(Call{std::move(answer), std::move(response), node::Engine::NowMs()});
    bool refused = false;
    {
      MutexLock lock(&mutex_);
      refused = looks_ >= kLooksMax;
      if (!refused) {
        ++looks_;
        calls_.push_back(call);
      }
    }
    if (refused) {
      call->response->set_unknown("the disk has not answered the calls before this one");
      return call->answer->Reply(*call->response);
    }
    LookAtFiles(storage_->sites(), [self = shared_from_this(), call](const RunFiles& files) {
      self->Ended(call, files);
    });
  }

  void Ended(const std::shared_ptr<Call>& call, const RunFiles& files) {
    {
      MutexLock lock(&mutex_);
      --looks_;
      if (std::erase(calls_, call) == 0) return;  // it was too late
    }
    v1::GetStorageResponse& response = *call->response;
    for (size_t i = 0; i < files.machines.size(); ++i) {
      Fill(files.machines[i], response.mutable_machines(static_cast<int>(i)));
    }
    SetSpace(files.log_space, response.mutable_disks(0));
    SetSpace(files.segment_space, response.mutable_disks(1));
    if (!files.status.ok()) response.set_unknown(std::string(files.status.message()));
    call->answer->Reply(response);
  }

  ServiceContext* const context_;
  RunStorage* const storage_;  // outlives what waits for a disk, unlike the context
  Mutex mutex_;
  uint64_t looks_ ABSL_GUARDED_BY(mutex_) = 0;  // that a disk has not answered
  std::vector<std::shared_ptr<Call>> calls_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

void AddStorageMethods(ServiceContext* context, MethodTable* methods) {
  auto calls = std::make_shared<StorageCalls>(context);
  context->ticker->Add(kLookMs, [calls](uint64_t now_ms) { calls->Tick(now_ms); });
  methods->AddUnary(
      "/forebay.v1.AdminService/GetStorage",
      TypedUnary<v1::GetStorageRequest, v1::GetStorageResponse>(
          [calls](const CallContext&, const v1::GetStorageRequest&, StorageResponder responder) {
            calls->Begin(std::make_shared<StorageResponder>(std::move(responder)));
          }));
}

}  // namespace forebay::server
