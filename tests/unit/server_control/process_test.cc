// The program itself: what it prints, how it ends.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

extern char** environ;

namespace forebay {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

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

// The line of a refusal to start, which must end with three.
class Refused : public Program {
 protected:
  std::string Refusal(std::vector<std::string> arguments) {
    for (const char* more : {"--listen.unix=", "--listen.http=", "--listen.grpc=127.0.0.1:0"}) {
      const std::string entry = std::string(more).substr(0, std::string(more).find('=') + 1);
      const auto given = [&](const std::string& a) { return a.rfind(entry, 0) == 0; };
      if (std::none_of(arguments.begin(), arguments.end(), given)) arguments.push_back(more);
    }
    Start(arguments);
    const int code = End();
    EXPECT_TRUE(code == 2 || code == 3) << code << ": " << Output();
    EXPECT_THAT(Output(), Not(HasSubstr("SIG")));
    return Output();
  }
  std::string File(const std::string& name, const std::string& text, mode_t mode = 0600) {
    const std::string path = folder_ + "/" + name;
    std::ofstream(path) << text;
    chmod(path.c_str(), mode);
    files_.push_back(path);
    return path;
  }
  ~Refused() override {
    for (const auto& path : files_) unlink(path.c_str());
  }
  std::vector<std::string> files_;
};

TEST_F(Refused, AnAnnounceFileThatCannotBeWrittenIsNamedWithTheReason) {
  const std::string nowhere = folder_ + "/no/folder/announced";
  EXPECT_THAT(Refusal({"--listen.announce_file=" + nowhere}),
              AllOf(HasSubstr("listen.announce_file"), HasSubstr(nowhere),
                    HasSubstr("No such file or directory")));
  EXPECT_THAT(Refusal({"--listen.announce_file=" + folder_}),
              AllOf(HasSubstr("listen.announce_file"), HasSubstr("Is a directory")));
  EXPECT_NE(access((folder_ + ".new").c_str(), F_OK), 0);
}

TEST_F(Refused, EveryFileThatCannotBeReadIsNamedWithTheReason) {
  const std::string there = File("there", "text");
  const std::string gone = folder_ + "/gone";
  const auto names = [](const char* entry, const std::string& path) {
    return AllOf(HasSubstr(entry), HasSubstr(path), HasSubstr("No such file or directory"));
  };
  EXPECT_THAT(Refusal({"--tls.cert=" + gone, "--tls.key=" + there}), names("tls.cert", gone));
  EXPECT_THAT(Refusal({"--tls.cert=" + there, "--tls.key=" + gone}), names("tls.key", gone));
  EXPECT_THAT(Refusal({"--tls.cert=" + there, "--tls.key=" + there, "--tls.client_ca=" + gone}),
              names("tls.client_ca", gone));
  EXPECT_THAT(Refusal({"--auth.tokens_file=" + gone}), names("auth.tokens_file", gone));
  EXPECT_THAT(Refusal({"--config=" + gone}), names("--config", gone));
  EXPECT_THAT(Refusal({"--tls.cert=" + folder_, "--tls.key=" + there}),
              AllOf(HasSubstr("tls.cert"), HasSubstr("Is a directory")));
}

TEST_F(Refused, FilesThatHoldNoCertificateAreNamed) {
  const std::string cert = File("cert", "not PEM"), key = File("key", "neither");
  EXPECT_THAT(Refusal({"--tls.cert=" + cert, "--tls.key=" + key}),
              AllOf(HasSubstr("tls.cert"), HasSubstr(cert), HasSubstr(key), HasSubstr("PEM")));
}

TEST_F(Refused, ASocketOrAddressThatCannotBeHadIsNamedWithTheReason) {
  const std::string nowhere = folder_ + "/no/folder/socket";
  EXPECT_THAT(
      Refusal({"--listen.unix=" + nowhere}),
      AllOf(HasSubstr("listen.unix"), HasSubstr(nowhere), HasSubstr("No such file or directory")));
  const std::string file = File("file", "text");
  EXPECT_THAT(Refusal({"--listen.unix=" + file}),
              AllOf(HasSubstr("listen.unix"), HasSubstr(file), HasSubstr("is no socket")));
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in taken{};
  taken.sin_family = AF_INET;
  taken.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(taken);
  ASSERT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&taken), size), 0);
  ASSERT_EQ(listen(fd, 1), 0);
  getsockname(fd, reinterpret_cast<sockaddr*>(&taken), &size);
  const std::string address = "127.0.0.1:" + std::to_string(ntohs(taken.sin_port));
  for (const std::string entry : {"listen.grpc", "listen.http"}) {
    EXPECT_THAT(Refusal({"--" + entry + "=" + address}),
                AllOf(HasSubstr(entry), HasSubstr(address), HasSubstr("Address already in use")));
  }
  close(fd);
}

// Here it waits for the text of a file, as it would for a file server that does not answer.
TEST_F(Program, ASignalEndsAStartThatWaits) {
  const std::string tokens = folder_ + "/tokens";
  ASSERT_EQ(mkfifo(tokens.c_str(), 0600), 0);
  Start({"--auth.tokens_file=" + tokens,
         "--listen.unix=", "--listen.http=", "--listen.grpc=127.0.0.1:0"});
  int writer = -1;
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (writer < 0 && std::chrono::steady_clock::now() < until) {
    writer = open(tokens.c_str(), O_WRONLY | O_NONBLOCK);
    std::this_thread::sleep_for(std::chrono::milliseconds(10));  // poll: until it reads
  }
  ASSERT_GE(writer, 0) << Output();
  kill(pid_, SIGTERM);
  EXPECT_EQ(End(), 4);
  EXPECT_THAT(Output(), HasSubstr("a signal ended the start"));
  close(writer);
  unlink(tokens.c_str());
}

TEST_F(Refused, ASegmentDirectoryOfAnotherRunIsLeftAlone) {
  const std::string shared = "--storage.segment_directory=" + folder_ + "/shared";
  const auto serve_one = [&] {
    Serve({"--storage.directory=" + folder_ + "/one", shared});
    kill(pid_, SIGTERM);
    EXPECT_EQ(End(), 0) << Output();
    unlink((folder_ + "/announced").c_str());
  };
  serve_one();
  EXPECT_THAT(Refusal({"--storage.directory=" + folder_ + "/other", shared}),
              AllOf(HasSubstr("holds the rollouts of run"), HasSubstr("Nothing was changed")));
  serve_one();  // nothing of it was taken
  for (const char* name : {"/one", "/other", "/shared"}) {
    std::filesystem::remove_all(folder_ + name);
  }
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
