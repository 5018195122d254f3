#include "arch/part.h"

#include <algorithm>
#include <array>

#include "base/error.h"

namespace automodel::arch {
namespace {

constexpr std::array<std::string_view, kRoleCount> kRoleNames = {
    "embedding",      "positions", "norm",       "attention", "mlp",          "router",       "experts",
    "shared experts", "head",      "recurrence", "adapters",  "vision tower", "layer inputs", "residual streams"};

}  // namespace

std::string_view name_of(Role role) {
  return kRoleNames[static_cast<std::size_t>(role)];
}

Role role_of(Part part) {
  switch (part) {
    case Part::kMixerNorm:
    case Part::kMixerOutNorm:
    case Part::kFeedNorm:
    case Part::kFeedOutNorm:
    case Part::kQueryNorm:
    case Part::kKeyNorm:
    case Part::kQueryDownNorm:
    case Part::kKeyValueDownNorm:
    case Part::kIndexQueryNorm:
    case Part::kIndexKeyNorm:
    case Part::kEntryNorm:
    case Part::kIndexEntryNorm:
    case Part::kEntryBias:  // which only add: no matrix multiplies by them
    case Part::kIndexEntryBias:
    case Part::kSharedNorm:
    case Part::kSharedOutNorm:
    case Part::kExpertsNorm:
    case Part::kExpertsOutNorm:
    case Part::kInputNorm:
    case Part::kLayerScale:
    case Part::kStateNorm: return Role::kNorm;
    case Part::kQuery:
    case Part::kKey:
    case Part::kValue:
    case Part::kQkv:
    case Part::kSinks:
    case Part::kAttentionGate:
    case Part::kAttentionOut:
    case Part::kQueryDown:
    case Part::kQueryUp:
    case Part::kKeyValueDown:
    case Part::kKeyValueUp:
    case Part::kIndexQuery:
    case Part::kIndexKey:
    case Part::kOutDown:
    case Part::kEntryValue:
    case Part::kEntryLogits:
    case Part::kIndexEntryValue:
    case Part::kIndexEntryLogits:
    case Part::kIndexWeights: return Role::kAttention;
    case Part::kMixerStreams:
    case Part::kMixerStreamsBias:
    case Part::kMixerStreamsScale:
    case Part::kFeedStreams:
    case Part::kFeedStreamsBias:
    case Part::kFeedStreamsScale:
    case Part::kEndStreams:
    case Part::kEndStreamsBias:
    case Part::kEndStreamsScale: return Role::kStreams;
    case Part::kStateIn:
    case Part::kStateQuery:
    case Part::kStateKey:
    case Part::kStateValue:
    case Part::kStateGateDown:
    case Part::kStateGate:
    case Part::kStateRate:
    case Part::kStateDecayDown:
    case Part::kStateDecay:
    case Part::kStateConv:
    case Part::kStateQueryConv:
    case Part::kStateKeyConv:
    case Part::kStateValueConv:
    case Part::kStateDecayRate:
    case Part::kStateDecayBias:
    case Part::kStateSkip:
    case Part::kStateOut: return Role::kRecurrence;
    case Part::kGate:
    case Part::kUp:
    case Part::kGateUp:
    case Part::kDown:
    case Part::kInputGate:
    case Part::kInputUp:
    case Part::kActivation: return Role::kMlp;
    case Part::kRouter:
    case Part::kRouterBias:
    case Part::kRouterTable:
    case Part::kRouterScale:
    case Part::kExpertScale:
    case Part::kLatentIn:
    case Part::kLatentOut: return Role::kRouter;
    case Part::kExpertGate:
    case Part::kExpertUp:
    case Part::kExpertGateUp:
    case Part::kExpertDown: return Role::kExpert;
    case Part::kSharedGate:
    case Part::kSharedUp:
    case Part::kSharedGateUp:
    case Part::kSharedDown:
    case Part::kSharedSwitch: return Role::kSharedExpert;
    case Part::kInputsTable:
    case Part::kInputsProduct:
    case Part::kInputsNorm: return Role::kLayerInputs;
    case Part::kTowerProduct: return Role::kTower;
    case Part::kNone: break;
  }
  throw InternalError("a part of no layer has no role");
}

bool is_of_index(Part part) {
  constexpr std::array kParts = {Part::kIndexQuery,       Part::kIndexKey,       Part::kIndexQueryNorm,
                                 Part::kIndexKeyNorm,     Part::kIndexWeights,   Part::kIndexEntryValue,
                                 Part::kIndexEntryLogits, Part::kIndexEntryBias, Part::kIndexEntryNorm};
  return std::find(kParts.begin(), kParts.end(), part) != kParts.end();
}

}  // namespace automodel::arch
