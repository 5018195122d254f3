// Cutting text into pieces that are encoded each for itself.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "tokenizer/json_part.h"
#include "tokenizer/pattern.h"

namespace automodel::tokenizer {

struct Piece {
  std::string_view text;
  bool first = false;  ///< begins where the whole text begins
};

/// A reference to something that takes pieces, made without a word; it must outlive the call that it is given to.
class PieceSink {
 public:
  template <class Take>
  requires(!std::is_same_v<std::remove_cvref_t<Take>, PieceSink>)
      PieceSink(Take&& take)  // NOLINT(google-explicit-constructor,bugprone-forwarding-reference-overload)
      : object_(const_cast<void*>(static_cast<const void*>(&take))),
        call_([](void* object, const Piece& piece) { (*static_cast<std::remove_reference_t<Take>*>(object))(piece); }) {
  }
  void operator()(const Piece& piece) const {
    if (!piece.text.empty()) call_(object_, piece);
  }

 private:
  void* object_;
  void (*call_)(void*, const Piece&);
};

class PreTokenizer {
 public:
  /// The `pre_tokenizer` of tokenizer.json: ByteLevel, Split, Metaspace, Digits, WhitespaceSplit, Whitespace,
  /// BertPreTokenizer, Sequence, or null. Adds problems.
  static PreTokenizer read(const JsonPart& part);

  /// Gives the pieces of `piece` in order. Where byte_level(), pieces are bytes that stand for their characters.
  void run(const Piece& piece, PatternMatcher& matcher, const PieceSink& sink) const {
    run_from(0, piece, matcher, sink);
  }
  bool byte_level() const { return byte_level_; }

  class Step {
   public:
    Step() = default;
    Step(const Step&) = delete;
    Step& operator=(const Step&) = delete;
    virtual ~Step() = default;
    virtual void run(const Piece& piece, PatternMatcher& matcher, const PieceSink& sink) const = 0;
  };

 private:
  void add(const JsonPart& part);
  void run_from(std::size_t step, const Piece& piece, PatternMatcher& matcher, const PieceSink& sink) const;

  std::vector<std::unique_ptr<const Step>> steps_;
  bool byte_level_ = false;
};

}  // namespace automodel::tokenizer
