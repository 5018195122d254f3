// From tokens back to text.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tokenizer/json_part.h"
#include "tokenizer/pattern.h"

namespace automodel::tokenizer {

class Decoder {
 public:
  /// Reads the `decoder` of tokenizer.json: ByteLevel, ByteFallback, Fuse, Metaspace, Replace, Strip, WordPiece,
  /// Sequence, or null (tokens joined by spaces). Adds problems.
  static Decoder read(const JsonPart& part);
  std::string decode(std::vector<std::string> tokens, PatternMatcher& matcher) const;

  /// Rewrites the token list.
  class Step {
   public:
    Step() = default;
    Step(const Step&) = delete;
    Step& operator=(const Step&) = delete;
    virtual ~Step() = default;
    virtual void apply(std::vector<std::string>& tokens, PatternMatcher& matcher) const = 0;
  };

 private:
  void add(const JsonPart& part);
  std::vector<std::unique_ptr<const Step>> steps_;
  std::string separator_;
};

}  // namespace automodel::tokenizer
