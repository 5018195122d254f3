#include "plan/values/activations.h"

namespace automodel::plan {

std::string_view name_of(Recompute recompute) {
  switch (recompute) {
    case Recompute::kNone: return "none";
    case Recompute::kFull: return "full";
    case Recompute::kSelective: return "selective";
  }
  return "";
}

}  // namespace automodel::plan
