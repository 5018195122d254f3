// How many attention scores exist at one time.
#include "base/score_chunk.h"

#include <catch2/catch.hpp>

namespace automodel {
namespace {

/// Scores of a part of so many queries.
std::int64_t scores_of(std::int64_t heads, std::int64_t rows, std::int64_t keys, std::int64_t reach) {
  return heads * rows * std::min(keys, rows + reach - 1);
}

}  // namespace

TEST_CASE("parts of queries have as many scores as fit, also where a window is small", "[base]") {
  for (const bool on_host : {false, true}) {
    const auto most = on_host ? kScoresOnHost : kScoresOnDevice;
    for (const std::int64_t heads : {1, 3, 32, 4096})
      for (const std::int64_t keys : {1, 500, 8192, 262144})
        for (const std::int64_t reach : {std::int64_t{1}, std::int64_t{128}, std::int64_t{4097}, keys}) {
          CAPTURE(on_host, heads, keys, reach);
          const auto rows = score_rows(heads, keys, keys, reach, on_host);
          CHECK((rows == 1 || scores_of(heads, rows, keys, std::min(keys, reach)) <= most));
          CHECK((rows == keys || scores_of(heads, rows + 1, keys, std::min(keys, reach)) > most));
        }
  }
}

}  // namespace automodel
