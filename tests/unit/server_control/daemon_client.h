// A whole daemon on free loopback ports, and a blocking client with messages, for tests.
//
// One thread at a time, but for streams, whose reading and writing may be two.
#pragma once

#include <arpa/inet.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/impl/codegen/client_unary_call.h>
#include <grpcpp/impl/codegen/rpc_method.h>
#include <grpcpp/support/sync_stream.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "forebay/v1/actor.pb.h"
#include "forebay/v1/admin.pb.h"
#include "forebay/v1/trainer.pb.h"
#include "server/daemon.h"
#include "server/grpc/typed.h"
#include "server/log.h"

namespace forebay::server {

class DaemonTest : public ::testing::Test {
 protected:
  using PushStream = grpc::ClientReaderWriter<grpc::ByteBuffer, grpc::ByteBuffer>;

  // Until it holds; a failure after a minute.
  template <class Condition>
  static void Await(Condition condition) {
    const auto until = std::chrono::steady_clock::now() + std::chrono::minutes(1);
    while (!condition()) {
      if (std::chrono::steady_clock::now() > until) {
        ADD_FAILURE() << "what is waited for does not come";
        return;
      }
      std::this_thread::yield();
    }
  }

  void Start(node::Config config = {}) {
    StartLog("error", "text");
    char folder[] = "/tmp/forebay-test-XXXXXX";
    folder_ = mkdtemp(folder);
    config.listen_grpc = "127.0.0.1:0";
    config.listen_http = "127.0.0.1:0";
    config.listen_unix = folder_ + "/socket";
    config.listen_announce_file = folder_ + "/announced";
    auto started = Daemon::Start(config, nullptr);
    ASSERT_TRUE(started.ok()) << started.status();
    daemon_ = *std::move(started);
    std::ifstream file(config.listen_announce_file);
    announced_.assign(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    arguments.SetMaxReceiveMessageSize(-1);
    channel_ = grpc::CreateCustomChannel("unix:" + folder_ + "/socket",
                                         grpc::InsecureChannelCredentials(), arguments);
  }
  void Stop() {
    channel_.reset();
    daemon_.reset();
    for (const char* name : {"/socket", "/announced"}) unlink((folder_ + name).c_str());
    rmdir(folder_.c_str());
  }
  ~DaemonTest() override { Stop(); }

  // The text between quotes that the announced file has under a name.
  std::string Announced(const std::string& name) const {
    const std::string key = "\"" + name + "\": \"";
    const size_t begin = announced_.find(key) + key.size();
    return announced_.substr(begin, announced_.find('"', begin) - begin);
  }

  // Calls "/forebay.v1.<service>/<method>".
  template <class Request, class Response>
  grpc::Status Call(const std::string& path, const Request& request, Response* response,
                    grpc::ClientContext* context) {
    const std::string method = "/forebay.v1." + path;
    const grpc::internal::RpcMethod rpc(method.c_str(), grpc::internal::RpcMethod::NORMAL_RPC);
    grpc::ByteBuffer answer;
    const grpc::Status status =
        grpc::internal::BlockingUnaryCall<grpc::ByteBuffer, grpc::ByteBuffer>(
            channel_.get(), rpc, context, SerializeBody(request), &answer);
    if (status.ok()) {
      EXPECT_TRUE(ParseBody(&answer, response)) << method;
    }
    return status;
  }
  template <class Request, class Response>
  grpc::Status Call(const std::string& path, const Request& request, Response* response) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60));
    return Call(path, request, response, &context);
  }
  template <class Response, class Request>
  Response Good(const std::string& path, const Request& request) {
    Response response;
    const grpc::Status status = Call(path, request, &response);
    EXPECT_TRUE(status.ok()) << path << ": " << status.error_message();
    return response;
  }
  // The message with which a call was refused, after its code.
  template <class Response, class Request>
  std::string Refused(const std::string& path, const Request& request) {
    Response response;
    const grpc::Status status = Call(path, request, &response);
    return std::to_string(status.error_code()) + " " + status.error_message();
  }
  std::unique_ptr<PushStream> Push(grpc::ClientContext* context) {
    context->set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60));
    static const grpc::internal::RpcMethod rpc("/forebay.v1.ActorService/Push",
                                               grpc::internal::RpcMethod::BIDI_STREAMING);
    return std::unique_ptr<PushStream>(
        grpc::internal::ClientReaderWriterFactory<grpc::ByteBuffer, grpc::ByteBuffer>::Create(
            channel_.get(), rpc, context));
  }

  // What the HTTP server answers, headers included.
  std::string Get(const std::string& path) {
    const std::string address = Announced("http");
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(static_cast<uint16_t>(std::stoi(address.substr(address.rfind(':') + 1))));
    inet_pton(AF_INET, "127.0.0.1", &to.sin_addr);
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    EXPECT_EQ(connect(fd, reinterpret_cast<sockaddr*>(&to), sizeof(to)), 0);
    const std::string request = "GET " + path + " HTTP/1.0\r\n\r\n";
    EXPECT_EQ(write(fd, request.data(), request.size()), static_cast<ssize_t>(request.size()));
    std::string answer;
    char buffer[4096];
    for (ssize_t n; (n = read(fd, buffer, sizeof(buffer))) > 0;)
      answer.append(buffer, static_cast<size_t>(n));
    close(fd);
    return answer;
  }

  // ---- the usual run

  void PutSource(const std::string& name, uint32_t group_size, int tasks,
                 v1::Purpose purpose = v1::PURPOSE_TRAIN) {
    v1::PutSourceRequest put;
    put.mutable_settings()->set_name(name);
    put.mutable_settings()->set_group_size(group_size);
    put.mutable_settings()->set_purpose(purpose);
    Good<v1::PutSourceResponse>("AdminService/PutSource", put);
    if (tasks > 0) AddTasks(name, tasks);
  }
  void AddTasks(const std::string& name, int tasks) {
    v1::AddTasksRequest add;
    add.set_source(name);
    for (int i = 0; i < tasks; ++i) {
      add.add_tasks()->set_external_id("task-" + std::to_string(i));
      add.mutable_tasks(i)->set_payload("what is " + std::to_string(i) + "?");
    }
    EXPECT_EQ(Good<v1::AddTasksResponse>("AdminService/AddTasks", add).added(), tasks);
  }
  void OpenSession(uint64_t session = 1) {
    v1::OpenSessionRequest open;
    open.set_session(session);
    open.set_actor("actor");
    Good<v1::OpenSessionResponse>("ActorService/OpenSession", open);
  }
  v1::AcquireResponse Acquire(uint32_t max, uint32_t wait_ms = 0) {
    v1::AcquireRequest acquire;
    acquire.set_session(1);
    acquire.set_request_id(++request_id_);
    acquire.set_max(max);
    acquire.set_wait_ms(wait_ms);
    acquire.set_loads_any_version(true);
    return Good<v1::AcquireResponse>("ActorService/Acquire", acquire);
  }
  // A rollout of one sequence with the two required columns.
  static v1::PushFrame Frame(const v1::Assignment& assignment, uint32_t tokens, double reward) {
    v1::PushFrame frame;
    frame.set_session(1);
    auto* header = frame.add_rollouts();
    header->set_attempt_id(assignment.attempt_id());
    header->set_token(assignment.token());
    auto* sequence = header->add_sequences();
    sequence->set_tokens(tokens);
    sequence->set_prompt_tokens(1);
    sequence->set_loss_tokens(tokens - 1);
    auto* column = header->add_columns();
    column->set_name("tokens");
    column->set_dtype(v1::DTYPE_U32);
    column->set_bytes(uint64_t{4} * tokens);
    column = header->add_columns();
    column->set_name("loss_mask");
    column->set_dtype(v1::DTYPE_U8);
    column->set_bytes(tokens);
    (*header->mutable_rewards())["reward"] = reward;
    frame.set_payload(std::string(size_t{4} * tokens, 'x') + '\0' + std::string(tokens - 1, '\1'));
    return frame;
  }
  v1::PushReply PushOne(const v1::PushFrame& frame) {
    grpc::ClientContext context;
    auto stream = Push(&context);
    stream->Write(SerializeBody(frame));
    grpc::ByteBuffer body;
    v1::PushReply reply;
    EXPECT_TRUE(stream->Read(&body) && ParseBody(&body, &reply));
    stream->WritesDone();
    stream->Finish();
    return reply;
  }
  uint64_t AttachTrainer() {
    v1::AttachTrainerRequest attach;
    attach.set_trainer("trainer");
    attach.set_process(99);
    attach.mutable_mesh()->set_dp(1);
    return Good<v1::AttachTrainerResponse>("TrainerService/AttachTrainer", attach).generation();
  }
  static v1::OpenStepRequest Step(uint64_t generation, uint64_t step, uint32_t groups,
                                  uint32_t wait_ms) {
    v1::OpenStepRequest open;
    open.set_generation(generation);
    open.set_step(step);
    open.set_wait_ms(wait_ms);
    open.mutable_spec()->set_groups(groups);
    open.mutable_spec()->mutable_mesh()->set_dp(1);
    open.mutable_spec()->set_token_budget(1'000'000);
    return open;
  }

  std::string folder_;
  std::string announced_;
  std::unique_ptr<Daemon> daemon_;
  std::shared_ptr<grpc::Channel> channel_;
  uint64_t request_id_ = 0;
};

}  // namespace forebay::server
