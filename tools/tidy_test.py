"""Each rule of tidy.py can fail, names the place, and lets the right form pass."""

import pathlib
import re

import cpp_text
import pytest
import tidy

HEADER = "// A thing. Safe from any thread.\n#pragma once\n"

# A small repository without a finding; every case below adds or replaces files in it.
GOOD = {
    "CMakeLists.txt": "add_subdirectory(src/base)\nadd_subdirectory(src/shard)\nadd_subdirectory(src/io)\n",
    "src/base/CMakeLists.txt": "forebay_library(b SOURCES a.cc)\n",
    "src/base/a.h": HEADER,
    "src/base/a.cc": '#include "base/a.h"\n',
    "src/shard/CMakeLists.txt": "forebay_library(s SOURCES s.cc)\n",
    "src/shard/s.h": HEADER + '#include "base/a.h"\n',
    "src/shard/s.cc": '#include "shard/s.h"\n',
    "tests/CMakeLists.txt": "forebay_test(t SOURCES t_test.cc)\n",
    "tests/t_test.cc": '#include "shard/s.h"\nTEST(A, B) {}\n',
    "docs/dependencies.md": "# Dependencies\n\ngRPC because.\n",
    "README.md": "See [the page](docs/dependencies.md#dependencies).\n",
}
SHARD = '#include "shard/s.h"\n'
LONG = "void F() {\n" + "  G();\n" * 69 + "}\n"
PAGE = "## Grammar\n## Example\n## Versions\n"
HASH = "absl::flat_hash_map<int, int> places_;\n"

# rule, file, content, line of the finding
BROKEN = [
    ("include-table", "src/base/a.cc", '#include "base/a.h"\n#include "shard/s.h"\n', 2),
    ("include-table", "src/shard/s.cc", SHARD + '#include "forebay/v1/actor.pb.h"\n', 2),
    ("include-table", "src/server/x.h", HEADER + '#include "shard/s.h"\n', 3),
    ("include-table", "src/lonely/x.h", HEADER, 1),
    ("include-path", "src/shard/s.cc", SHARD + '#include "base/gone.h"\n', 2),
    ("pure", "src/shard/s.cc", SHARD + "#include <mutex>\n", 2),
    ("pure", "src/shard/s.cc", SHARD + '#include "base/sync.h"\n', 2),
    ("pure", "src/shard/s.cc", SHARD + "#include <sys/socket.h>\n", 2),
    ("pure", "src/shard/s.cc", SHARD + "#include <grpcpp/grpcpp.h>\n", 2),
    ("pure", "src/shard/s.cc", SHARD + "#include <iostream>\n", 2),
    ("pure", "src/shard/s.cc", SHARD + "auto t = std::chrono::steady_clock::now();\n", 2),
    ("pure", "src/shard/s.cc", SHARD + "std::unordered_map<int, int> m;\n", 2),
    ("pure", "src/shard/s.cc", SHARD + "int x = rand();\n", 2),
    ("pure", "src/shard/s.cc", SHARD + "std::thread t;\n", 2),
    ("hash-order", "src/shard/s.cc", SHARD + HASH + "void F() { for (auto& p : places_) G(p); }\n", 3),
    ("hash-order", "src/shard/s.cc", SHARD + HASH + "auto i = places_.begin();\n", 3),
    ("edges", "src/shard/s.cc", SHARD + "#include <liburing.h>\n", 2),
    ("edges", "src/storage/s.cc", '#include "absl/synchronization/mutex.h"\n', 1),
    ("edges", "include/forebay/c.h", HEADER + "#include <grpcpp/grpcpp.h>\n", 3),
    ("size", "src/shard/s.cc", SHARD + LONG, 2),
    ("size", "src/shard/s.h", HEADER + "//\n" * 250, 250),
    ("size", "src/shard/s.cc", SHARD + "//\n" * 600, 600),
    ("size", "tools/x.py", "def f():\n" + "    g()\n" * 70, 1),
    ("header", "src/shard/s.h", "#pragma once\n", 1),
    ("header", "src/shard/s.h", "// A thing.\n#pragma once\n", 1),
    ("header", "src/shard/s.h", "// A thing. Safe from any thread.\n", 1),
    ("dead-file", "src/shard/orphan.cc", "", 1),
    ("dead-file", "src/shard/orphan.h", HEADER, 1),
    ("dead-file", "tests/other_test.cc", "TEST(A, B) {}\n", 1),
    ("dead-file", "tests/fuzz/x_fuzz.cc", "", 1),
    ("dead-file", "src/extra/CMakeLists.txt", "", 1),
    ("unlisted-test", "tests/t_check.cc", "TEST(A, B) {}\n", 1),
    ("unlisted-test", "tests/checks.py", "def test_a():\n    assert f()\n", 1),
    ("unfinished", "src/shard/s.cc", SHARD + "// TODO: more\n", 2),
    ("unfinished", "README.md", "FIXME\n", 1),
    ("unfinished", "tests/t_test.cc", "TEST(A, DISABLED_B) {}\n", 1),
    ("unfinished", "tests/t_test.cc", "TEST(A, B) { GTEST_SKIP(); }\n", 1),
    ("unfinished", "tests/t_test.cc", "TEST(A, B) { EXPECT_TRUE(true); }\n", 1),
    ("format-page", "docs/formats/x.md", PAGE, 1),
    ("format-page", "docs/formats/x.md", "`tests/golden/x-1`\n" + PAGE, 1),
    ("format-page", "docs/formats/x.md", PAGE.replace("Example", "Sample"), 1),
    ("unfinished", "tests/test_a.py", "@pytest.mark.skip\ndef test_a(): pass\n", 1),
    ("unfinished", "tests/test_a.py", "def test_a():\n    torch = pytest.importorskip('torch')\n", 2),
    ("unfinished", "tests/test_a.py", "@unittest.skipUnless(x, 'y')\ndef test_a(): pass\n", 1),
    ("sleep", "tests/t_test.cc", "TEST(A, B) {\n  absl::SleepFor(x);\n}\n", 2),
    ("sleep", "tests/test_a.py", "def test_a():\n    time.sleep(1)\n", 2),
    ("throw", "src/shard/s.cc", SHARD + "void F() { throw 1; }\n", 2),
    ("machine-path", "README.md", "Run /home/me/forebay/dev\n", 1),
    ("machine-path", "tools/x.sh", "cd /" "work/main\n", 1),
    ("link", "README.md", "[gone](docs/gone.md)\n", 1),
    ("link", "README.md", "[gone](docs/dependencies.md#no-such-heading)\n", 1),
    ("link", "src/shard/s.cc", SHARD + "// See docs/gone.md.\n", 2),
    ("proto", "proto/forebay/v1/a.proto", "// A message.\nmessage A {\n  uint32 field = 1;\n}\n", 3),
    ("proto", "proto/forebay/v1/a.proto", "enum A {\n  // Nothing.\n  A_NONE = 0;\n}\n", 1),
    ("dependency", "CMakeLists.txt", GOOD["CMakeLists.txt"] + "find_package(leveldb)\n", 4),
]

FINE = [
    ("src/shard/s.cc", SHARD + HASH + "// order-free: a sum\nint n = Sum(places_.begin(), places_.end());\n"),
    ("src/shard/s.cc", SHARD + HASH + "int n = places_.find(1) == places_.end();\n"),
    ("src/shard/s.cc", SHARD + '// std::thread, rand() and "throw" in a comment\nauto s = "std::mutex rand()";\n'),
    ("src/server/x.h", HEADER + '#include "shard/messages.h"\n'),
    ("src/shard/s.h", "// Plain values.\n#pragma once\n"),
    ("src/io/ring.h", HEADER + "#include <liburing.h>\n"),
    ("tests/t_test.cc", "TEST(A, B) {\n  absl::SleepFor(x);  // poll: until the file is there\n}\n"),
    ("proto/forebay/v1/a.proto", "// A.\nmessage A {\n  uint32 field = 1;  // Count.\n  // Name.\n  string n = 2;\n}\n"),
    ("CMakeLists.txt", GOOD["CMakeLists.txt"] + "find_package(gRPC CONFIG)\n"),
    ("README.md", "[out](https://example.org/x) and [here](#top)\n\n# Top\n"),
    ("src/shard/s.cc", SHARD + LONG.replace("  G();\n", "", 1)),
]


def findings(root: pathlib.Path, files: dict[str, str]) -> list[tuple[str, int, str, str]]:
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return tidy.run(root)


def test_the_small_repository_is_clean(tmp_path):
    assert findings(tmp_path, GOOD) == []


@pytest.mark.parametrize(("rule", "path", "content", "line"), BROKEN)
def test_the_rule_finds_the_break(tmp_path, rule, path, content, line):
    found = findings(tmp_path, GOOD | {path: content})
    assert (path, line, rule) in [finding[:3] for finding in found]


@pytest.mark.parametrize(("path", "content"), FINE)
def test_the_right_form_passes(tmp_path, path, content):
    files = GOOD | {"src/shard/messages.h": HEADER, path: content}
    about = [f for f in findings(tmp_path, files) if f[0] == path and f[2] != "dead-file"]
    assert about == []


def test_every_rule_has_a_case_that_breaks_it():
    assert {case[0] for case in BROKEN} == set(tidy.RULES)


def test_a_finding_says_where_and_why(tmp_path, capsys, monkeypatch):
    findings(tmp_path, GOOD | {"src/shard/orphan.cc": ""})
    monkeypatch.setattr("sys.argv", ["tidy.py", "--root", str(tmp_path)])
    assert tidy.main() == 1
    out = capsys.readouterr().out
    assert "src/shard/orphan.cc:1: dead-file: in no CMakeLists.txt" in out
    assert re.search(r"^\d+ rules passed, 1 failed$", out, re.MULTILINE)


def test_functions_are_found_in_all_their_forms():
    text = """
#define M(x) \\
  { x }
namespace a::b {
template <class T, class U = std::vector<int>>
class Box final : public Base<T> {
 public:
  Box() : x_{1}, y_(2) {
    Go();
  }
  int x() const { return x_; }
 private:
  int x_{0};
  std::array<int, 2> z_ = {1, 2};
};
enum class Kind : int { kA, kB };
struct alignas(64) Record {
  bool operator()(int a) const noexcept { return a > 12'000; }
};
template <class T>
std::map<int, int> Make(std::function<void()> f = [] { Go(); }) {
  auto inner = [&](int i) { return R"({ not code )"; };
  if (x) { char c = '{'; }
  return {};
}
}  // namespace a::b
extern "C" int Entry(const char* s) { return 0; }
extern "C" {
int Other() { return 1; }
}
"""
    found = [(f.name, f.lines) for f in cpp_text.functions(text)]
    assert found == [("Box", 3), ("x", 1), ("operator", 1), ("Make", 6), ("Entry", 1), ("Other", 1)]
