// Tests that run on several ranks at once, as processes under mpirun or as threads of one process.
//
// A test program is a table of cases and one line of main():
//
//   const std::vector<RankCase> kCases = {{"an all_reduce sums", [](comm::World& world) { ... RANK_CHECK(x == y); }}};
//   int main(int argc, char** argv) { return automodel::test::run_rank_suite(argc, argv, kCases); }
//
// A failed check ends the whole job with a message that names the check, the rank and the case. Catch2's checks must
// not be used here: they do not stop the other ranks and are not thread-safe.
#pragma once

#include <string>
#include <vector>

#include <fmt/format.h>

#include "comm/world.h"

namespace automodel::test {

struct RankCase {
  const char* name;  ///< a sentence
  void (*run)(comm::World& world);
  int least_ranks = 1;
  int most_ranks = 1 << 20;
  /// Skipped unless --case names it (needs much memory or time).
  bool only_by_name = false;
};

/// Options: `--backend mpi|loopback` (mpi), `--ranks N` (for loopback), `--case TEXT` (only cases whose name contains
/// it), `--deadline SECONDS` (30), `--stage` (through staging buffers), `--no-progress` (no background thread).
/// Returns the exit code for main().
int run_rank_suite(int argc, char** argv, const std::vector<RankCase>& cases);

/// Throws Error (kInternal, id `internal`).
[[noreturn]] void rank_check_failed(const char* file, int line, const std::string& what);

template <class A, class B>
void rank_check_equal(const A& a, const B& b, const char* expression, const char* file, int line) {
  if (!(a == b)) rank_check_failed(file, line, fmt::format("{} ({} against {})", expression, a, b));
}

}  // namespace automodel::test

#define RANK_CHECK(condition) \
  ((condition) ? void(0) : ::automodel::test::rank_check_failed(__FILE__, __LINE__, #condition))
#define RANK_EQUAL(a, b) ::automodel::test::rank_check_equal((a), (b), #a " == " #b, __FILE__, __LINE__)
