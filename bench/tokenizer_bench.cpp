// Encoding speed: tokenizer_bench FOLDER FILE [ROUNDS]. Documents are the parts of FILE between NUL bytes. Prints one
// JSON object: seconds of the fastest round, bytes, and a checksum of the ids, which bench/compare_tokenizers.py
// compares with that of Hugging Face's tokenizers.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "base/diagnostic.h"
#include "tokenizer/tokenizer.h"

int main(int argc, char** argv) {
  using namespace automodel;  // NOLINT(google-build-using-namespace): a single-file program
  if (argc < 3) {
    std::fprintf(stderr, "usage: %s FOLDER FILE [ROUNDS]\n", argv[0]);
    return 2;
  }
  Diagnostics problems;
  // CPU time: there is one thread, and other programs may share the core.
  const auto seconds = [] { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; };
  const double load_begin = seconds();
  const auto tokenizer = tokenizer::Tokenizer::load(argv[1], problems);
  const double load = seconds() - load_begin;
  if (!tokenizer) {
    std::fputs(to_text(problems).c_str(), stderr);
    return 2;
  }
  std::ifstream stream(argv[2], std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(stream), {}};
  double best = 1e9;
  std::size_t count = 0;
  std::uint64_t sum = 0;
  for (int round = 0; round < (argc > 3 ? std::atoi(argv[3]) : 3); ++round) {
    tokenizer::Encoder encoder(*tokenizer);  // new, so that nothing is cached from the previous round
    std::vector<tokenizer::Id> ids;
    count = sum = 0;
    const double begin = seconds();
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t end = std::min(text.find('\0', at), text.size());
      ids.clear();
      encoder.encode(std::string_view(text).substr(at, end - at), false, ids);
      count += ids.size();
      for (const auto id : ids) sum = sum * 31 + static_cast<std::uint64_t>(id);
      at = end + 1;
    }
    best = std::min(best, seconds() - begin);
  }
  std::printf("{\"seconds\": %.6f, \"load\": %.6f, \"bytes\": %zu, \"tokens\": %zu, \"checksum\": \"%016llx\"}\n", best,
              load, text.size(), count, static_cast<unsigned long long>(sum));
  return 0;
}
