#include "tokenizer/piece_model.h"

#include "tokenizer/bpe.h"
#include "tokenizer/unigram.h"
#include "tokenizer/word_piece.h"

namespace automodel::tokenizer {

std::unique_ptr<const PieceModel> PieceModel::read(const JsonPart& part, bool byte_level) {
  // Old BPE files have no type.
  const auto type = part.text_if("type").value_or("BPE");
  if (type == "BPE") return BpeModel::read(part, byte_level);
  if (type != "Unigram" && type != "WordPiece") {
    part.refuse_type("model", {"BPE", "Unigram", "WordPiece"});
    return nullptr;
  }
  if (byte_level) {
    part.fail(type + " does not work on bytes", "the pre_tokenizer ByteLevel goes with BPE");
    return nullptr;
  }
  if (type == "Unigram") return UnigramModel::read(part);
  return WordPieceModel::read(part);
}

}  // namespace automodel::tokenizer
