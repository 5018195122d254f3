// Splits text into pieces that are encoded independently.
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
  bool first = false;  ///< starts at the beginning of the whole text
};

/// A non-owning, implicitly constructed reference to a callable that takes pieces; the callable must outlive the call.
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
  /// Reads the `pre_tokenizer` of tokenizer.json: ByteLevel, Split, Metaspace, Digits, WhitespaceSplit, Whitespace,
  /// BertPreTokenizer, Punctuation, FixedLength, Sequence, or null. Adds problems.
  static PreTokenizer read(const JsonPart& part);

  /// Passes the pieces of `piece` to `sink` in order. If byte_level(), pieces are raw bytes, each standing for its
  /// character of the byte alphabet.
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
  bool spelled_ = false;  ///< the last steps work on the characters of the byte alphabet
};

}  // namespace automodel::tokenizer
