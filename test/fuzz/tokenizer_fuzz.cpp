// Arbitrary bytes as a tokenizer.json (and, after a NUL, a tokenizer_config.json): it is refused with problems, or
// encodes and decodes; nothing but an Error is thrown.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "base/error.h"
#include "tokenizer/tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace automodel;             // NOLINT(google-build-using-namespace): a program of one file
  using namespace automodel::tokenizer;  // NOLINT(google-build-using-namespace)
  const std::string text(reinterpret_cast<const char*>(data), size);
  const std::size_t cut = text.find('\0');
  TokenizerFiles files{.tokenizer = text.substr(0, cut), .folder = "fuzz"};
  if (cut != std::string::npos) files.config = text.substr(cut + 1);
  Diagnostics problems;
  const auto tokenizer = Tokenizer::parse(files, problems);
  for (const auto& problem : problems)
    if (problem.message.empty()) std::abort();
  if (!tokenizer) {
    if (problems.empty()) std::abort();
    return 0;
  }
  try {
    Encoder encoder(*tokenizer);
    std::vector<Id> ids;
    for (const char* sample :
         {"Hello  world, it's 1234567!\n\n  a<s>b</s> \xC3\xA9\xE4\xBD\xA0\xF0\x9F\x98\x80 \xFF\xE2\x96\x81x", " ", "",
          "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa b"})
      encoder.encode(sample, true, ids);
    for (const Id id : ids)
      if (id < 0) std::abort();
    for (Id id = 0; id < 300; ++id) ids.push_back(id);
    const std::string back = tokenizer->decode(ids, false) + tokenizer->decode(ids, true);
    if (back.size() > (std::size_t{1} << 30)) std::abort();
  } catch (const Error&) {  // a pattern that gives up
  }
  return 0;
}
