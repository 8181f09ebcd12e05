// The program itself: what it prints, how it ends.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

extern char** environ;

namespace forebay {
namespace {

using ::testing::HasSubstr;

class Program : public ::testing::Test {
 protected:
  Program() {
    char path[] = "/tmp/forebay-test-XXXXXX";
    folder_ = mkdtemp(path);
  }
  ~Program() override {
    if (pid_ > 0) {
      kill(pid_, SIGKILL);
      waitpid(pid_, nullptr, 0);
    }
    for (const char* name : {"/out", "/announced"}) unlink((folder_ + name).c_str());
    rmdir(folder_.c_str());
  }

  void Start(const std::vector<std::string>& arguments) {
    std::string program = FOREBAY_BUFFERD;
    std::vector<std::string> owned = arguments;
    std::vector<char*> argv = {program.data()};
    for (auto& argument : owned) argv.push_back(argument.data());
    argv.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    const std::string out = folder_ + "/out";
    posix_spawn_file_actions_addopen(&actions, 1, out.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    posix_spawn_file_actions_adddup2(&actions, 1, 2);
    ASSERT_EQ(posix_spawn(&pid_, FOREBAY_BUFFERD, &actions, nullptr, argv.data(), environ), 0);
    posix_spawn_file_actions_destroy(&actions);
  }
  // Serves on free ports.
  void Serve(std::vector<std::string> more = {}) {
    const std::string announced = folder_ + "/announced";
    more.push_back("--listen.grpc=127.0.0.1:0");
    more.push_back("--listen.http=127.0.0.1:0");
    more.push_back("--listen.unix=");
    more.push_back("--listen.announce_file=" + announced);
    Start(more);
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    const std::chrono::milliseconds pause(10);
    while (access(announced.c_str(), R_OK) != 0 && std::chrono::steady_clock::now() < until) {
      std::this_thread::sleep_for(pause);  // poll: the file comes when it serves
    }
    ASSERT_EQ(access(announced.c_str(), R_OK), 0) << Output();
  }
  // The exit code, or minus the signal.
  int End() {
    int status = 0;
    EXPECT_EQ(waitpid(pid_, &status, 0), pid_);
    pid_ = 0;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }
  std::string Output() {
    std::ifstream file(folder_ + "/out");
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  }

  std::string folder_;
  pid_t pid_ = 0;
};

TEST_F(Program, SaysItsVersionAndItsEntries) {
  Start({"--version"});
  EXPECT_EQ(End(), 0);
  EXPECT_THAT(Output(), HasSubstr("bufferd "));
  Start({"--help"});
  EXPECT_EQ(End(), 0);
  EXPECT_THAT(Output(), HasSubstr("--memory.payload_bytes_max=4294967296"));
}

TEST_F(Program, AWrongConfigurationEndsItWithTwo) {
  Start({"--shard=2"});
  EXPECT_EQ(End(), 2);
  EXPECT_THAT(Output(), HasSubstr("nearest is 'shards'"));
  Start({"--listen.grpc=here"});
  EXPECT_EQ(End(), 2);
  EXPECT_THAT(Output(), HasSubstr("listen.grpc"));
}

TEST_F(Program, AnAddressThatItCannotHaveEndsItWithThree) {
  Start({"--listen.grpc=0.0.0.0:0", "--listen.unix=", "--listen.http="});
  EXPECT_EQ(End(), 3);
  EXPECT_THAT(Output(), HasSubstr("not loopback"));
}

TEST_F(Program, ServesUntilItIsToldToEnd) {
  for (const int signal : {SIGTERM, SIGINT}) {
    Serve({"--log.format=json"});
    kill(pid_, signal);
    EXPECT_EQ(End(), 0) << Output();
    EXPECT_THAT(Output(), HasSubstr("\"event\":\"serving\""));
    EXPECT_THAT(Output(), HasSubstr("\"event\":\"stopped\""));
    unlink((folder_ + "/announced").c_str());
  }
}

}  // namespace
}  // namespace forebay
