// Arbitrary bytes as a tokenizer.model: it is refused with a problem, or converted to a tokenizer.json that the
// tokenizer encodes with or refuses.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "base/error.h"
#include "tokenizer/sentencepiece_file.h"
#include "tokenizer/tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace automodel;             // NOLINT(google-build-using-namespace): a program of one file
  using namespace automodel::tokenizer;  // NOLINT(google-build-using-namespace)
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  Diagnostics problems;
  const auto text = json_of_sentencepiece(bytes, std::nullopt, "fuzz", problems);
  if (text.has_value() != problems.empty()) std::abort();
  if (is_sentencepiece_file(bytes) && !text && problems.front().message.empty()) std::abort();
  if (!text) return 0;
  const auto tokenizer = Tokenizer::parse({.tokenizer = *text, .folder = "fuzz"}, problems);
  if (!tokenizer && problems.empty()) std::abort();
  if (!tokenizer) return 0;
  try {
    Encoder encoder(*tokenizer);
    std::vector<Id> ids;
    encoder.encode("Hello  world 12 \xC3\xA9\xE4\xBD\xA0 <s> \xFF ", true, ids);
    for (const Id id : ids)
      if (id < 0 || id >= tokenizer->vocab_size()) std::abort();
  } catch (const Error&) {  // a character that has no token
  }
  return 0;
}
