// A group's messages over its own MPI communicator. Includes mpi.h: only for use in this folder.
#pragma once

#include <memory>

#include <mpi.h>

#include "comm/engine.h"
#include "comm/transport.h"

namespace automodel::comm {

/// Throws Error (kEnvironment, id `transport-failed`) unless `status` is MPI_SUCCESS.
void check_mpi(int status, const char* call);

class MpiTransport : public Transport {
 public:
  /// Takes ownership of `communicator`.
  explicit MpiTransport(MPI_Comm communicator);
  ~MpiTransport() override;
  /// From now on the communicator is freed under this engine's lock. Weak, since the engine's operations own this
  /// transport.
  void set_engine(std::weak_ptr<Engine> engine) { engine_ = std::move(engine); }

  Ticket post(const Piece& piece) override;
  bool finished(Ticket& ticket, const Piece& piece) override;
  bool cancel(Ticket& ticket, const Piece& piece) noexcept override;
  int max_tag() const override { return max_tag_; }

 private:
  MPI_Comm communicator_;
  std::weak_ptr<Engine> engine_;
  int max_tag_ = 32767;  ///< the minimum that MPI guarantees
};

}  // namespace automodel::comm
