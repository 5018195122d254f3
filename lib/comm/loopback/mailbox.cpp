#include "comm/loopback/mailbox.h"

#include <algorithm>
#include <cstring>

namespace automodel::comm {

void Mailbox::post(Letter& letter) {
  const std::lock_guard lock(mutex_);
  auto& others = letter.piece.outgoing ? receives_ : sends_;
  const auto match =
      std::ranges::find(others, letter.piece.tag, [](const Letter* waiting) { return waiting->piece.tag; });
  if (match == others.end()) {
    (letter.piece.outgoing ? sends_ : receives_).push_back(&letter);
    return;
  }
  Letter& other = **match;
  others.erase(match);
  const Piece& from = letter.piece.outgoing ? letter.piece : other.piece;
  const Piece& to = letter.piece.outgoing ? other.piece : letter.piece;
  const std::int64_t bytes = std::min(from.bytes, to.bytes);
  if (bytes > 0) std::memcpy(to.data, from.data, static_cast<std::size_t>(bytes));
  letter.other_bytes = other.piece.bytes;
  other.other_bytes = letter.piece.bytes;
  letter.over.store(true, std::memory_order_release);
  other.over.store(true, std::memory_order_release);
}

void Mailbox::withdraw(Letter& letter) {
  const std::lock_guard lock(mutex_);
  std::erase(letter.piece.outgoing ? sends_ : receives_, &letter);
}

}  // namespace automodel::comm
