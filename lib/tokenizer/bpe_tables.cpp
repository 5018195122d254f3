// The two hash tables of byte-pair encoding.
#include <bit>
#include <cstring>

#include "tokenizer/bpe.h"

namespace automodel::tokenizer {
namespace {

constexpr std::uint64_t kFactor = 0x9E3779B97F4A7C15;

std::uint64_t mix(std::uint64_t a, std::uint64_t b) {
  const auto product = static_cast<unsigned __int128>(a) * b;
  return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64);
}

std::uint64_t load(const char* from, std::size_t count) {
  std::uint64_t out = 0;
  std::memcpy(&out, from, count);
  return out;
}

}  // namespace

std::uint64_t hash_bytes(std::string_view bytes) {
  std::uint64_t hash = bytes.size() * kFactor;
  const char* at = bytes.data();
  std::size_t left = bytes.size();
  for (; left >= 8; at += 8, left -= 8) hash = mix(hash ^ load(at, 8), kFactor);
  // Two overlapping loads instead of a variable-length copy.
  if (left >= 4)
    hash = mix(hash ^ (load(at, 4) | load(at + left - 4, 4) << 32), kFactor);
  else if (left > 0)
    hash = mix(hash ^ (load(at, 1) | load(at + left / 2, 1) << 8 | load(at + left - 1, 1) << 16), kFactor);
  return mix(hash, kFactor ^ 0x5851F42D4C957F2D);
}

void TokenTable::reserve(std::size_t tokens, std::size_t bytes) {
  text_.reserve(bytes);
  while (slots_.size() < tokens * 2) grow();
}

std::size_t TokenTable::place(std::uint64_t hash, std::string_view token) const {
  std::size_t i = hash & (slots_.size() - 1);
  while (slots_[i].id != kNoId &&
         (slots_[i].hash != hash || std::string_view(text_).substr(slots_[i].offset, slots_[i].length) != token))
    i = (i + 1) & (slots_.size() - 1);
  return i;
}

void TokenTable::grow() {
  std::vector<Slot> old(slots_.size() * 2);
  old.swap(slots_);
  for (const auto& slot : old) {
    if (slot.id == kNoId) continue;
    std::size_t i = slot.hash & (slots_.size() - 1);
    while (slots_[i].id != kNoId) i = (i + 1) & (slots_.size() - 1);
    slots_[i] = slot;
  }
}

void TokenTable::insert(std::string_view token, Id id) {
  if (used_ * 2 >= slots_.size()) grow();
  const std::uint64_t hash = hash_bytes(token);
  Slot& slot = slots_[place(hash, token)];
  if (slot.id == kNoId) {
    ++used_;
    slot = {hash, static_cast<std::uint32_t>(text_.size()), static_cast<std::uint32_t>(token.size()), id};
    text_.append(token);
  }
  slot.id = id;
}

Id TokenTable::find(std::string_view token) const {
  return slots_[place(hash_bytes(token), token)].id;
}

void MergeTable::reserve(std::size_t merges) {
  while (slots_.size() < merges * 2) grow();
}

std::size_t MergeTable::place(std::uint64_t pair) const {
  std::size_t i = pair * kFactor >> shift_;
  while (slots_[i].pair != pair && slots_[i].pair != ~std::uint64_t{0}) i = (i + 1) & (slots_.size() - 1);
  return i;
}

void MergeTable::grow() {
  std::vector<Slot> old(slots_.size() * 2);
  old.swap(slots_);
  --shift_;
  for (const auto& slot : old)
    if (slot.pair != ~std::uint64_t{0}) slots_[place(slot.pair)] = slot;
}

void MergeTable::insert(Id left, Id right, Merge merge) {
  if (used_ * 2 >= slots_.size()) grow();
  Slot& slot = slots_[place(key(left, right))];
  if (slot.pair == ~std::uint64_t{0}) ++used_;
  slot = {key(left, right), merge};
}

const MergeTable::Merge* MergeTable::find(Id left, Id right) const {
  const Slot& slot = slots_[place(key(left, right))];
  return slot.pair == ~std::uint64_t{0} ? nullptr : &slot.merge;
}

}  // namespace automodel::tokenizer
