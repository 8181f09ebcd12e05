// One RPC on the server: a state machine that its polling thread drives through gRPC's operations.
//
// A call owns itself: made waiting for a client, it deletes itself when its last operation has come
// back. Everything runs on the poller's thread, except what CallLink offers.
#pragma once

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/grpcpp.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>

#include "server/grpc/method_table.h"
#include "server/grpc/poller.h"
#include "server/grpc/rpc.h"
#include "server/grpc/rpc_server.h"

namespace forebay::server {

class Call;

// What a call and the handles on it share. Any thread, unless said otherwise.
class CallLink {
 public:
  CallLink(std::shared_ptr<Mailbox> mailbox, Call* call, Deadline deadline)
      : mailbox(std::move(mailbox)), deadline(deadline), call(call) {}

  // Runs `f(call)` on the call's thread: at once if this is it and `at_once`. Drops it if the call
  // is over by then.
  template <class F>
  static void Run(std::shared_ptr<CallLink> link, bool at_once, F f);

  const std::shared_ptr<Mailbox> mailbox;
  const Deadline deadline;
  std::atomic<bool> cancelled{false};
  Call* call;  // null once the call is gone; the call's thread alone
};

// What the calls of one server share.
struct CallShared {
  grpc::AsyncGenericService service;
  MethodTable* methods = nullptr;
  Authorizer authorize;
  Gate admit;
  size_t calls_max = 0;
  std::atomic<size_t> calls{0};
};

class Call final : public Event, public CallContext, public Stream {
 public:
  // Asks the server for one more call.
  static void Await(CallShared* shared, Poller* poller) { new Call(shared, poller); }

  const std::shared_ptr<CallLink>& link() const { return link_; }
  // The call's share of a server that goes down.
  void OnServerDrain();
  // Answers at once, whatever the handler does: what is queued is dropped.
  void End(const absl::Status& status);

  void Answer(grpc::ByteBuffer body);
  void AnswerError(const absl::Status& status);
  void SetOnCancel(Task task);
  bool answered() const { return answered_; }

  // Event: the request for a call came back.
  void Handle(bool ok) override;
  void Drop() override;

  // CallContext
  std::string_view method() const override { return context_.method(); }
  Deadline deadline() const override { return context_.deadline(); }
  std::string peer() const override { return context_.peer(); }
  std::string Metadata(std::string_view key) const override;

  // Stream
  void Read() override;
  void Write(grpc::ByteBuffer body) override;
  size_t queued_bytes() const override { return queued_bytes_; }
  void Finish(const absl::Status& status) override;
  StreamRef ref() override { return StreamRef(link_); }

 private:
  // An operation of the call that comes back through the queue.
  class Operation final : public Event {
   public:
    Operation(Call* call, void (Call::*done)(bool)) : call_(call), done_(done) {}
    void Handle(bool ok) override { (call_->*done_)(ok); }
    void Drop() override { call_->OperationDropped(); }

   private:
    Call* const call_;
    void (Call::*const done_)(bool);
  };

  Call(CallShared* shared, Poller* poller);
  ~Call() override;

  void Begin();
  absl::Status Admit() const;
  void OnRead(bool ok);
  void OnWritten(bool ok);
  void OnFinished(bool ok);
  // The client's side of the call is over: cancelled, or our Finish has been taken.
  void OnOver(bool ok);
  void OperationDropped();
  void StartRead();
  void WriteNext();
  void StartFinish(const absl::Status& status);
  void CountEnd(int code);
  bool CanBegin() const { return poller_->running() && !over_; }
  void DeleteWhenIdle();

  CallShared* const shared_;
  Poller* const poller_;
  grpc::GenericServerContext context_;
  grpc::GenericServerAsyncReaderWriter stream_{&context_};
  std::shared_ptr<CallLink> link_;
  Method* served_ = nullptr;
  std::unique_ptr<StreamHandler> handler_;
  std::chrono::steady_clock::time_point began_;

  int operations_ = 0;  // that the queue has not returned yet
  bool accepted_ = false;
  bool reading_ = false;
  bool writing_ = false;
  bool answered_ = false;   // nothing more is said
  bool finishing_ = false;  // Finish is begun
  bool over_ = false;
  bool counted_ = false;
  bool above_mark_ = false;
  Task on_cancel_;
  grpc::ByteBuffer message_;
  std::deque<grpc::ByteBuffer> queue_;
  size_t queued_bytes_ = 0;
  size_t writing_bytes_ = 0;
  absl::Status final_status_;

  Operation read_done_{this, &Call::OnRead};
  Operation write_done_{this, &Call::OnWritten};
  Operation finish_done_{this, &Call::OnFinished};
  Operation over_done_{this, &Call::OnOver};
};

template <class F>
void CallLink::Run(std::shared_ptr<CallLink> link, bool at_once, F f) {
  if (at_once && link->mailbox->on_own_thread()) {
    if (link->call != nullptr) f(link->call);
    return;
  }
  const std::shared_ptr<Mailbox> mailbox =
      link->mailbox;  // the task may be gone before Post returns
  mailbox->Post([link = std::move(link), f = std::move(f)]() mutable {
    if (link->call != nullptr) f(link->call);
  });
}

}  // namespace forebay::server
