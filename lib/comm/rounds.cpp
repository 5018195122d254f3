#include "comm/rounds.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "comm/reduce.h"

namespace automodel::comm {
namespace {

/// Outgoing pieces are never written to.
std::byte* readable(const std::byte* data) {
  return const_cast<std::byte*>(data);
}

void receive(std::vector<Piece>& pieces, std::byte* data, std::int64_t bytes, int peer, int tag) {
  add_message(pieces, {false, data, bytes, peer, tag});
}
void send(std::vector<Piece>& pieces, const std::byte* data, std::int64_t bytes, int peer, int tag) {
  add_message(pieces, {true, readable(data), bytes, peer, tag});
}

void copy_bytes(std::byte* to, const std::byte* from, std::int64_t bytes) {
  if (bytes > 0 && to != from) std::memcpy(to, from, static_cast<std::size_t>(bytes));
}

/// First element of part `index` when `total` is split into `parts` equal parts.
std::int64_t part_begin(std::int64_t total, int parts, int index) {
  return total * index / parts;
}

/// The other members, starting after this rank, so that not all of them send to rank 0 first.
std::vector<int> others(Seat seat) {
  std::vector<int> out;
  for (int k = 1; k < seat.size; ++k) out.push_back((seat.rank + k) % seat.size);
  return out;
}

/// Pointers to the blocks to sum, in rank order: this rank's own at `own`, the others' consecutive from `arrived`.
std::vector<const std::byte*> summands(Seat seat, const std::byte* own, const std::byte* arrived, std::int64_t bytes) {
  std::vector<const std::byte*> out;
  for (int r = 0; r < seat.size; ++r) {
    out.push_back(r == seat.rank ? own : arrived);
    if (r != seat.rank) arrived += bytes;
  }
  return out;
}

/// Index of `peer` among the other ranks, in rank order.
std::int64_t arrival_slot(Seat seat, int peer) {
  return peer < seat.rank ? peer : peer - 1;
}

Program once(std::vector<Round> rounds) {
  Program program;
  program.rounds = [rounds = std::move(rounds)](std::int64_t, int) { return rounds; };
  return program;
}

}  // namespace

void add_message(std::vector<Piece>& pieces, const Piece& message) {
  std::int64_t begin = 0;
  do {
    Piece piece = message;
    piece.data = message.data + begin;
    piece.bytes = std::min(kLargestPiece, message.bytes - begin);
    pieces.push_back(piece);
    begin += kLargestPiece;
  } while (begin < message.bytes);
}

RoundMaker::RoundMaker(Seat seat, TagSequence tags, std::shared_ptr<ScratchPool> scratch, RoundLimits limits)
    : seat_(seat), tags_(tags), scratch_(std::move(scratch)), limits_(limits) {}

int RoundMaker::log_steps() const {
  return static_cast<int>(std::bit_width(static_cast<unsigned>(seat_.size - 1)));
}

std::vector<Round> RoundMaker::gather_in_log_steps(std::byte* blocks, std::int64_t block_bytes,
                                                   std::int64_t first_tag) const {
  std::vector<Round> rounds;
  for (int have = 1; have < seat_.size; have *= 2) {
    const int count = std::min(have, seat_.size - have);
    const int tag = tags_.at(first_tag, static_cast<std::int64_t>(rounds.size()));
    Round round;
    receive(round.pieces, blocks + have * block_bytes, count * block_bytes, (seat_.rank + have) % seat_.size, tag);
    send(round.pieces, blocks, count * block_bytes, (seat_.rank - have + seat_.size) % seat_.size, tag);
    rounds.push_back(std::move(round));
  }
  return rounds;
}

Program RoundMaker::all_reduce(std::byte* data, std::int64_t count, Reduction reduction) {
  const auto bytes = count * static_cast<std::int64_t>(c10::elementSize(reduction.dtype));
  return small(bytes) ? all_reduce_whole(data, count, reduction) : all_reduce_chunked(data, count, reduction);
}

Program RoundMaker::all_reduce_whole(std::byte* data, std::int64_t count, Reduction reduction) {
  const auto bytes = count * static_cast<std::int64_t>(c10::elementSize(reduction.dtype));
  const auto buffer = scratch_->take(bytes * seat_.size);
  if (seat_.size >= limits_.log_steps_from) {
    copy_bytes(buffer.get(), data, bytes);
    auto rounds = gather_in_log_steps(buffer.get(), bytes, tags_.reserve(log_steps()));
    rounds.back().finish = [=, seat = seat_] {
      std::vector<const std::byte*> values;
      for (int r = 0; r < seat.size; ++r)
        values.push_back(buffer.get() + (r - seat.rank + seat.size) % seat.size * bytes);
      reduce_in_order(reduction.dtype, reduction.op, data, values, count);
    };
    return once(std::move(rounds));
  }
  const int tag = tags_.at(tags_.reserve(1), 0);
  Round round;
  for (const int peer : others(seat_))
    receive(round.pieces, buffer.get() + arrival_slot(seat_, peer) * bytes, bytes, peer, tag);
  for (const int peer : others(seat_)) send(round.pieces, data, bytes, peer, tag);
  round.finish = [=, seat = seat_] {
    reduce_in_order(reduction.dtype, reduction.op, data, summands(seat, data, buffer.get(), bytes), count);
  };
  return once({std::move(round)});
}

Program RoundMaker::all_reduce_chunked(std::byte* data, std::int64_t count, Reduction reduction) {
  // Each rank sums one part of each chunk and sends the result to the others.
  const auto size = static_cast<std::int64_t>(c10::elementSize(reduction.dtype));
  const std::int64_t chunk_count = limits_.chunk / size;
  Program program;
  program.chunks = (count + chunk_count - 1) / chunk_count;
  program.lanes = limits_.lanes;
  const std::int64_t largest_part = (std::min(count, chunk_count) / seat_.size + 1) * size;
  const std::int64_t lane_bytes = largest_part * (seat_.size - 1);
  const auto buffer = scratch_->take(lane_bytes * program.lanes);
  const std::int64_t tags = tags_.reserve(2 * program.chunks);
  program.rounds = [=, seat = seat_, sequence = tags_](std::int64_t chunk, int lane) {
    std::byte* const begin = data + chunk * chunk_count * size;
    const std::int64_t here = std::min(chunk_count, count - chunk * chunk_count);
    const auto part = [=](int r) { return begin + part_begin(here, seat.size, r) * size; };
    std::byte* const arrived = buffer.get() + lane * lane_bytes;
    const std::int64_t mine = part(seat.rank + 1) - part(seat.rank);
    std::vector<Round> rounds(2);
    const int scatter = sequence.at(tags, 2 * chunk);
    const int gather = sequence.at(tags, 2 * chunk + 1);
    for (const int peer : others(seat))
      receive(rounds[0].pieces, arrived + arrival_slot(seat, peer) * mine, mine, peer, scatter);
    for (const int peer : others(seat)) {
      send(rounds[0].pieces, part(peer), part(peer + 1) - part(peer), peer, scatter);
      receive(rounds[1].pieces, part(peer), part(peer + 1) - part(peer), peer, gather);
    }
    for (const int peer : others(seat)) send(rounds[1].pieces, part(seat.rank), mine, peer, gather);
    rounds[0].finish = [=] {
      std::byte* const own = part(seat.rank);
      reduce_in_order(reduction.dtype, reduction.op, own, summands(seat, own, arrived, mine), mine / size);
    };
    return rounds;
  };
  return program;
}

Program RoundMaker::reduce_scatter(std::byte* out, const std::byte* in, std::int64_t shard_count, Reduction reduction) {
  const auto size = static_cast<std::int64_t>(c10::elementSize(reduction.dtype));
  const std::int64_t chunk_count = std::max<std::int64_t>(1, limits_.chunk / size / seat_.size);
  Program program;
  program.chunks = std::max<std::int64_t>(1, (shard_count + chunk_count - 1) / chunk_count);
  program.lanes = limits_.lanes;
  const std::int64_t lane_bytes = std::min(chunk_count, shard_count) * size * (seat_.size - 1);
  const auto buffer = scratch_->take(lane_bytes * program.lanes);
  const std::int64_t tags = tags_.reserve(program.chunks);
  program.rounds = [=, seat = seat_, sequence = tags_](std::int64_t chunk, int lane) {
    const std::int64_t here = std::min(chunk_count, shard_count - chunk * chunk_count);
    const std::int64_t begin = chunk * chunk_count * size;
    const std::int64_t bytes = here * size;
    std::byte* const arrived = buffer.get() + lane * lane_bytes;
    const auto shard = [=](int r) { return in + r * shard_count * size + begin; };
    const int tag = sequence.at(tags, chunk);
    Round round;
    for (const int peer : others(seat))
      receive(round.pieces, arrived + arrival_slot(seat, peer) * bytes, bytes, peer, tag);
    for (const int peer : others(seat)) send(round.pieces, shard(peer), bytes, peer, tag);
    round.finish = [=] {
      reduce_in_order(reduction.dtype, reduction.op, out + begin, summands(seat, shard(seat.rank), arrived, bytes),
                      here);
    };
    return std::vector<Round>{std::move(round)};
  };
  return program;
}

Program RoundMaker::all_gather(std::byte* out, const std::byte* in, std::int64_t shard_bytes) {
  if (seat_.size >= limits_.log_steps_from && small(shard_bytes)) {
    const auto buffer = scratch_->take(shard_bytes * seat_.size);
    copy_bytes(buffer.get(), in, shard_bytes);
    auto rounds = gather_in_log_steps(buffer.get(), shard_bytes, tags_.reserve(log_steps()));
    rounds.back().finish = [=, seat = seat_] {
      for (int k = 0; k < seat.size; ++k)
        copy_bytes(out + (seat.rank + k) % seat.size * shard_bytes, buffer.get() + k * shard_bytes, shard_bytes);
    };
    return once(std::move(rounds));
  }
  copy_bytes(out + seat_.rank * shard_bytes, in, shard_bytes);
  const int tag = tags_.at(tags_.reserve(1), 0);
  Round round;
  for (const int peer : others(seat_)) receive(round.pieces, out + peer * shard_bytes, shard_bytes, peer, tag);
  for (const int peer : others(seat_)) send(round.pieces, in, shard_bytes, peer, tag);
  return once({std::move(round)});
}

Program RoundMaker::all_to_all(std::byte* out, const std::byte* in, std::span<const std::int64_t> out_bytes,
                               std::span<const std::int64_t> in_bytes) {
  const auto begins = [](std::span<const std::int64_t> bytes) {
    std::vector<std::int64_t> begin(bytes.size(), 0);
    for (std::size_t i = 1; i < bytes.size(); ++i) begin[i] = begin[i - 1] + bytes[i - 1];
    return begin;
  };
  const auto out_begin = begins(out_bytes);
  const auto in_begin = begins(in_bytes);
  const auto own = static_cast<std::size_t>(seat_.rank);
  copy_bytes(out + out_begin[own], in + in_begin[own], in_bytes[own]);
  const int tag = tags_.at(tags_.reserve(1), 0);
  Round round;
  for (const int peer : others(seat_)) {
    const auto p = static_cast<std::size_t>(peer);
    receive(round.pieces, out + out_begin[p], out_bytes[p], peer, tag);
  }
  for (const int peer : others(seat_)) {
    const auto p = static_cast<std::size_t>(peer);
    send(round.pieces, in + in_begin[p], in_bytes[p], peer, tag);
  }
  return once({std::move(round)});
}

Program RoundMaker::broadcast(std::byte* data, std::int64_t bytes, int root) {
  // Small: the root sends everything to everyone. Large: the root sends each rank one part and all ranks exchange their
  // parts, so that the root sends everything only once instead of n - 1 times.
  const std::int64_t tags = tags_.reserve(2);
  const bool is_root = seat_.rank == root;
  std::vector<Round> rounds(1);
  if (small(bytes) || seat_.size == 2) {
    const int tag = tags_.at(tags, 0);
    if (is_root)
      for (const int peer : others(seat_)) send(rounds[0].pieces, data, bytes, peer, tag);
    else
      receive(rounds[0].pieces, data, bytes, root, tag);
    return once(std::move(rounds));
  }
  rounds.resize(2);
  const auto part = [=, this](int r) { return data + part_begin(bytes, seat_.size, r); };
  const auto part_bytes = [=](int r) { return part(r + 1) - part(r); };
  const int own = seat_.rank;
  const int scatter = tags_.at(tags, 0);
  const int gather = tags_.at(tags, 1);
  if (!is_root) receive(rounds[0].pieces, part(own), part_bytes(own), root, scatter);
  for (const int peer : others(seat_)) {
    if (is_root) send(rounds[0].pieces, part(peer), part_bytes(peer), peer, scatter);
    if (!is_root) receive(rounds[1].pieces, part(peer), part_bytes(peer), peer, gather);
  }
  for (const int peer : others(seat_))
    if (peer != root) send(rounds[1].pieces, part(own), part_bytes(own), peer, gather);
  return once(std::move(rounds));
}

Program RoundMaker::barrier() {
  // Dissemination: after step k, each rank has heard from 2^k others.
  const std::int64_t tags = tags_.reserve(log_steps());
  std::vector<Round> rounds;
  for (int distance = 1; distance < seat_.size; distance *= 2) {
    const int tag = tags_.at(tags, static_cast<std::int64_t>(rounds.size()));
    Round round;
    receive(round.pieces, nullptr, 0, (seat_.rank - distance + seat_.size) % seat_.size, tag);
    send(round.pieces, nullptr, 0, (seat_.rank + distance) % seat_.size, tag);
    rounds.push_back(std::move(round));
  }
  return once(std::move(rounds));
}

}  // namespace automodel::comm
