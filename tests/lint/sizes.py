#!/usr/bin/env python3
"""Files, classes and functions that one can hold in one's head; CONTRIBUTING.md has the numbers, too.

  sizes.py ROOT [--tighten]   exit 1 and a line for each file, class or function that is larger than tests/lint/ratchet.txt allows
  sizes.py --self-test        plants sources of all kinds and checks what is found in them

A file's lines are all its lines. A function's are those from the beginning of its declaration to its closing brace, in C++ and
in Python. A class's fields are its own data members in C++, no statics; a struct without a private part is plain and may have any
number. The services are wiring: what is theirs without their tests has a limit as a whole.
"""

import ast
import os
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import cpp_scan  # noqa: E402  beside this file
import ratchet  # noqa: E402
import trees  # noqa: E402

LIMITS = {
    "file_lines": ratchet.Limit(600, "lines"),
    "class_fields": ratchet.Limit(25, "fields"),
    "function_lines": ratchet.Limit(80, "lines"),
    "service_lines": ratchet.Limit(1300, "lines without tests"),
}
SERVICES = ("common", "learner", "policy_server", "worker")
SERVICES_KEY = f"services/{{{','.join(SERVICES)}}}"


def python_functions(text):
    """(name with the classes around it, first line, last line) of every function."""
    found = []

    def visit(node, around):
        for child in ast.iter_child_nodes(node):
            if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)):
                first = min([child.lineno] + [decorator.lineno for decorator in child.decorator_list])
                found.append((f"{around}{child.name}", first, child.end_lineno))
                visit(child, f"{around}{child.name}.")
            else:
                visit(child, f"{around}{child.name}." if isinstance(child, ast.ClassDef) else around)
    visit(ast.parse(text), "")
    return found


def measure(root):
    files, complaints, service_lines = 0, [], 0
    beyond = {kind: {} for kind in LIMITS}

    def note(kind, key, value, where):
        # Functions of one name in one file, overloads: the largest counts.
        if value > LIMITS[kind].most and value > beyond[kind].get(key, (0, ""))[0]:
            beyond[kind][key] = (value, where)

    for path in trees.sources(root):
        files += 1
        text = trees.text(root, path)
        lines = text.count("\n") + (not text.endswith("\n") and text != "")
        note("file_lines", path, lines, path)
        folders = path.split("/")
        if folders[0] == "services" and folders[1] in SERVICES and path.endswith(trees.CPP) and not trees.is_test(path):
            service_lines += lines
        functions = []
        try:
            if path.endswith(trees.CPP):
                functions, classes = cpp_scan.scan(text)
                for found in classes:
                    if not found.plain:
                        note("class_fields", f"{path}: {found.name}", found.fields, f"{path}:{found.line}: {found.name}")
            elif path.endswith(".py"):
                functions = python_functions(text)
        except (cpp_scan.Unreadable, SyntaxError) as error:
            complaints.append(f"{path}: {error}: tests/lint cannot read this file")
        for name, first, last in functions:
            note("function_lines", f"{path}: {name}", last - first + 1, f"{path}:{first}: {name}")
    note("service_lines", SERVICES_KEY, service_lines, SERVICES_KEY)
    return ratchet.Found(files, beyond, complaints)


# A bit of everything that cpp_scan says it reads. What follows a line is found there: (name, lines) and (class, fields, plain).
CPP = r'''
#pragma once
#define OPEN(x) \
  namespace { void x() {
// void Commented() {
/* class Commented { */
namespace a::b {
namespace {
constexpr char kText[] = "{ not a brace \" {";
constexpr char kMark = '{', kQuote = '\'';
const char* const kRaw = R"json({"open": "{{" // no comment)json";
const int kMillion = 1'000'000, kTable[] = {1, 2, 3};
const std::map<std::string, std::vector<int>> kMap = {
    {"a", {1}},
    {"b", {2}}};
const auto kLambda = [](int x) {
  return x;
};
}  // namespace

enum class Kind : uint8_t { kOne, kTwo };
struct Forward;
class ABSL_LOCKABLE Forward2;

struct Plain {
  int a = 0, b = 1;
  std::vector<std::pair<int, int>> c{{1, 2}};
  void (*callback)(int, void*) = nullptr;
  int (*const table[3])(double);
  static constexpr int kNo = 3;
  union {
    int d;
    float e;
  };
  struct {
    int inside;
  } f;
};

template <typename T, typename = std::enable_if_t<(sizeof(T) > 4)>>
class ABSL_SCOPED_LOCKABLE Full final : public Base<T>, private Other {
 public:
  using Me = Full;
  friend class Friend;
  explicit Full(int a = int{3}, std::function<void(int)> f = [] { return; }) noexcept(true)
      : Base<T>{a}, a_{std::move(a)}, mask_((1u << 3) + 1), pointer_(nullptr) {
    if (a < 3) { a_ = {}; }
  }
  Full(const Full&) = delete;
  ~Full() override;
  bool operator==(const Full& other) const { return a_ == other.a_; }
  friend bool operator<(const Full& a, const Full& b) { return a.a_ < b.a_; }
  explicit operator bool() const {
    return true; }
  T operator()(int x) const ABSL_LOCKS_EXCLUDED(mutex_) { return x; }
  auto Trailing() const -> std::vector<T>;
  virtual void Pure(int x) = 0;
  std::map<int, std::function<void()>> Get() const { return {}; }
  enum { kA, kB };

 private:
  struct Inner {
    explicit Inner(int x) : x_(x) {}
    int x_;
   protected:
    int y_;
  };
  const std::function<void(int, int)> step_;
  mutable Mutex mutex_;
  std::map<int, int> a_ ABSL_GUARDED_BY(mutex_), b_ ABSL_GUARDED_BY(mutex_) = {{1, 2}};
  T* pointer_ ABSL_PT_GUARDED_BY(mutex_) = nullptr;
  unsigned bits_ : 3;
  alignas(64) std::atomic<int> mask_{0};
  char name_[16] = {};
  static int count_;
  Inner inner_{3};
  TROUPE_DISALLOW_COPY(Full);
};

template <typename T>
Full<T>::~Full() {
#ifdef ONE
  if (true) {
#elif defined(TWO)
  while (true) {
#else
  {
#endif
    Close();
  }
}

template <>
struct std::hash<Full<int>> {
  size_t operator()(const Full<int>& x) const { return 0; }
};

struct Point* NotAStruct(struct Point* p) {
  return p;
}

std::ostream& operator<<(std::ostream& os, const Plain&) {
  struct Local { int x; };
  auto inside = [&](int y) {
    return y << 3;
  };
  return os;
}

extern "C" {
int CFunction(void) { return 1; }
}

TEST_F(SomeTest, Works) {
  for (int i = 0; i < 3; ++i) {
  }
}
BENCHMARK(Thing)->Arg(3);
ABSL_FLAG(std::vector<int>, numbers, {}, "a text with {");
INSTANTIATE_TEST_SUITE_P(All, SomeTest, testing::Values(Case{1}, Case{2}));

void Lines(int a,
           int b)
    ABSL_NO_THREAD_SAFETY_ANALYSIS {
  Use(a,
      b);
}
}  // namespace a::b
'''
FUNCTIONS = [("kLambda", 3), ("Full::Full", 4), ("Full::operator==", 1), ("Full::operator<", 1), ("Full::operator bool", 2), ("Full::operator()", 1),
             ("Full::Get", 1), ("Full::Inner::Inner", 1), ("Full::~Full", 12),
             ("hash::operator()", 1), ("NotAStruct", 3), ("operator<<", 7), ("CFunction", 1),
             ("TEST_F(SomeTest, Works)", 4), ("Lines", 6)]
CLASSES = [("Plain::", 2, True), ("Plain::", 1, True), ("Plain", 8, True), ("Full::Inner", 2, False), ("Full", 9, False), ("hash", 0, True)]

PYTHON = """
class Thing:
    @property
    def first(self):
        return 1

def outer():
    async def inner():
        pass
    return inner
"""


def body(lines, indent="  "):
    return f"{indent}Work();\n" * lines


def fields(count):
    return "".join(f"  int a{i}_;\n" for i in range(count))


def self_test():
    failures = 0
    functions, classes = cpp_scan.scan(CPP)
    for what, expected, got in (
            ("functions", FUNCTIONS, [(f.name, f.last - f.first + 1) for f in functions]),
            ("classes", CLASSES, [(c.name, c.fields, c.plain) for c in classes]),
            ("Python", [("Thing.first", 3), ("outer", 4), ("outer.inner", 2)],
             [(name, last - first + 1) for name, first, last in python_functions(PYTHON)])):
        for one, other in zip(expected + [None] * len(got), got + [None] * len(expected)):
            if one != other:
                failures += 1
                print(f"self-test: {what}: expected {one}, got {other}")
    long_function = f"void F() {{\n{body(79)}}}\n"
    big_class = f"class C {{\n{fields(26)}}};\n"
    cases = [
        ("all at their limits", {
            "lib/a/a.cc": f"void F() {{\n{body(78)}}}\nclass C {{\n{fields(25)}}};\n", "lib/a/b.cc": "\n" * 600,
            "services/learner/a.cc": "\n" * 600, "services/worker/a.cc": "\n" * 500, "services/common/a.h": "\n" * 200,
            "services/common/a_test.cc": "\n" * 200, "services/cli/a.cc": "\n" * 200}, []),
        ("a file", {"lib/a/a.cc": "\n" * 601, "troupe": "\n" * 601}, ["lib/a/a.cc has 601 lines, expected at most 600", "troupe has 601"]),
        ("a function", {"lib/a/a.cc": "\n" + long_function}, ["lib/a/a.cc:2: F has 81 lines, expected at most 80"]),
        ("a function in a header of kernels", {"lib/a/a.inc": long_function}, ["F has 81 lines"]),
        ("a function in Python", {"bench/a.py": "def f():\n" + "    pass\n" * 80}, ["bench/a.py:1: f has 81 lines"]),
        ("a class", {"lib/a/a.h": big_class}, ["lib/a/a.h:1: C has 26 fields, expected at most 25"]),
        ("a plain struct", {"lib/a/a.h": big_class.replace("class", "struct")}, []),
        ("a struct with a private part", {"lib/a/a.h": f"struct C {{\n private:\n{fields(26)}}};\n"}, ["C has 26 fields"]),
        ("services", {f"services/{name}/a.cc": "\n" * 326 for name in SERVICES},
         [f"{SERVICES_KEY} has 1304 lines without tests, expected at most 1300"]),
        ("what cannot be read", {"lib/a/a.cc": "void F() {\n", "lib/a/b.cc": "}\n"},
         ["lib/a/a.cc: line 1: no brace closes", "lib/a/b.cc: line 1: this brace closes nothing"]),
        ("in the ratchet", {"lib/a/a.cc": long_function, ratchet.PATH: "# words\nfunction_lines 81 lib/a/a.cc: F\nother_kind 3 x\n"}, []),
        ("grown", {"lib/a/a.cc": long_function, ratchet.PATH: "function_lines 80 lib/a/a.cc: F\n"},
         ["F has 81 lines, expected at most 80: by tests/lint/ratchet.txt:1,"]),
        ("shrunk", {"lib/a/a.cc": long_function, ratchet.PATH: "function_lines 90 lib/a/a.cc: F\n"}, ["has shrunk from 90 to 81 lines"]),
        ("no longer needed", {"lib/a/a.cc": "", ratchet.PATH: "\nfunction_lines 90 lib/a/a.cc: F\n"},
         ["tests/lint/ratchet.txt:2: remove this line: lib/a/a.cc: F"]),
        ("twice, and a line without a value", {
            "lib/a/a.cc": long_function, ratchet.PATH: "function_lines 81 lib/a/a.cc: F\n" * 2 + "function_lines x\n"},
         ["ratchet.txt:2: function_lines of lib/a/a.cc: F stands in an earlier line",
          "ratchet.txt:3: expected KIND VALUE KEY, got 'function_lines x'"]),
    ]
    def tightened(root):
        ratchet.tighten(root, LIMITS, measure(root))
        return trees.text(root, ratchet.PATH).splitlines()
    failures += ratchet.check_cases("--tighten", [("lower, gone, kept, never raised", {
        "lib/a/a.cc": long_function, "lib/a/b.cc": long_function, "lib/a/c.cc": long_function,
        ratchet.PATH: "# words\nfunction_lines 90 lib/a/a.cc: F\nfunction_lines 90 lib/gone.cc: F\nfunction_lines 81 lib/a/b.cc: F\n"
                      "function_lines 80 lib/a/c.cc: F\nother_kind 3 x\n"},
        ["# words", "function_lines       81  lib/a/a.cc: F", "function_lines 81 lib/a/b.cc",
         "function_lines 80 lib/a/c.cc", "other_kind 3 x"])], tightened)
    return max(1 if failures else 0, ratchet.check_cases("sizes", cases, lambda root: sum(ratchet.judge(root, LIMITS, measure(root)), [])))


if __name__ == "__main__":
    sys.exit(ratchet.main("sizes", __doc__, LIMITS, measure, self_test))
