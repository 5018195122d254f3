#include "comm/operation.h"

#include <algorithm>
#include <utility>

namespace automodel::comm {

Operation::Operation(OperationLabel label, std::shared_ptr<Transport> transport, Program program,
                     std::vector<at::Tensor> keep)
    : label_(std::move(label)),
      transport_(std::move(transport)),
      program_(std::move(program)),
      keep_(std::move(keep)),
      lanes_(static_cast<std::size_t>(std::min<std::int64_t>(program_.lanes, program_.chunks))) {}

Operation::~Operation() {
  bool released = true;
  for (Lane& lane : lanes_)
    for (std::size_t i = 0; i < lane.tickets.size(); ++i)
      if (!lane.tickets[i].done) released &= transport_->cancel(lane.tickets[i], lane.rounds[lane.round].pieces[i]);
  // The transport may still write into the buffers, so leak them. This happens only while a failed job is ending.
  if (!released) new std::pair(std::move(keep_), std::move(program_));
}

void Operation::start() {
  try {
    for (std::size_t i = 0; i < lanes_.size(); ++i) next_chunk(lanes_[i], static_cast<int>(i));
  } catch (...) {
    fail();
  }
}

bool Operation::advance() noexcept {
  if (finished()) return false;
  try {
    bool moved = false;
    bool idle = true;
    for (std::size_t i = 0; i < lanes_.size(); ++i) {
      moved |= advance_lane(lanes_[i], static_cast<int>(i));
      idle &= lanes_[i].idle;
    }
    if (idle) end();
    return moved || idle;
  } catch (...) {
    fail();
    return true;
  }
}

void Operation::end() {
  lanes_.clear();
  program_ = {};
  keep_.clear();
  finished_.store(true, std::memory_order_release);
}

void Operation::fail() noexcept {
  error_ = std::current_exception();
  finished_.store(true, std::memory_order_release);
}

std::vector<Pending> Operation::pending(std::size_t most) noexcept {
  std::vector<Pending> out;
  if (finished()) return out;
  try {
    collect(out, most);
  } catch (...) {
    fail();
    out.clear();
  }
  return out;
}

void Operation::collect(std::vector<Pending>& out, std::size_t most) {
  for (Lane& lane : lanes_) {
    if (lane.idle) continue;
    const auto& pieces = lane.rounds[lane.round].pieces;
    for (std::size_t i = lane.first_open; i < pieces.size() && out.size() < most; ++i)
      if (!lane.tickets[i].done && !transport_->finished(lane.tickets[i], pieces[i]))
        out.push_back({label_.ranks[static_cast<std::size_t>(pieces[i].peer)], pieces[i].outgoing, pieces[i].tag});
  }
}

void Operation::next_chunk(Lane& lane, int index) {
  lane.idle = next_chunk_ == program_.chunks;
  if (lane.idle) {
    lane.tickets.clear();
    return;
  }
  lane.rounds = program_.rounds(next_chunk_++, index);
  lane.round = 0;
  post_round(lane);
}

void Operation::post_round(Lane& lane) {
  const auto& pieces = lane.rounds[lane.round].pieces;
  lane.tickets.clear();
  lane.first_open = 0;
  for (const Piece& piece : pieces) lane.tickets.push_back(transport_->post(piece));
}

bool Operation::round_over(Lane& lane) {
  const auto& pieces = lane.rounds[lane.round].pieces;
  for (; lane.first_open < pieces.size(); ++lane.first_open) {
    Ticket& ticket = lane.tickets[lane.first_open];
    // Checking the first open piece progresses all of them, so the others need not be checked yet.
    if (!ticket.done && !transport_->finished(ticket, pieces[lane.first_open])) return false;
  }
  return true;
}

bool Operation::advance_lane(Lane& lane, int index) {
  const auto begin = std::pair(lane.round, lane.first_open);
  bool moved = false;
  while (!lane.idle && round_over(lane)) {
    moved = true;
    if (const auto& finish = lane.rounds[lane.round].finish) finish();
    if (++lane.round < lane.rounds.size())
      post_round(lane);
    else
      next_chunk(lane, index);
  }
  return moved || begin != std::pair(lane.round, lane.first_open);
}

}  // namespace automodel::comm
