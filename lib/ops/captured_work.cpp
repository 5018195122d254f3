#include "ops/captured_work.h"

#include <utility>

namespace automodel::ops {
namespace {

MakeCapture& loaded() {
  static MakeCapture make;
  return make;
}

}  // namespace

const MakeCapture& loaded_capture() {
  return loaded();
}

void use_capture(MakeCapture make) {
  loaded() = std::move(make);
}

}  // namespace automodel::ops
