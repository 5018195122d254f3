#include "comm/mpi/transport.h"

#include <array>
#include <cstring>
#include <string>

#include <fmt/format.h>

#include "base/error.h"

namespace automodel::comm {
namespace {

/// A request is a pointer in Open MPI and an int in MPICH.
static_assert(sizeof(MPI_Request) <= sizeof(Ticket::handle));

MPI_Request request_of(const Ticket& ticket) {
  MPI_Request request = MPI_REQUEST_NULL;
  std::memcpy(&request, &ticket.handle, sizeof(MPI_Request));
  return request;
}

Ticket ticket_of(MPI_Request request) {
  Ticket ticket;
  std::memcpy(&ticket.handle, &request, sizeof(MPI_Request));
  return ticket;
}

}  // namespace

void check_mpi(int status, const char* call) {
  if (status == MPI_SUCCESS) return;
  std::array<char, MPI_MAX_ERROR_STRING> text = {};
  int length = 0;
  MPI_Error_string(status, text.data(), &length);
  throw Error(Diagnostic{"transport-failed"}
                  .says("{} failed: {}", call, std::string(text.data(), static_cast<std::size_t>(length)))
                  .hint("a rank or the network between two hosts was lost, or MPI is not usable here"));
}

MpiTransport::MpiTransport(MPI_Comm communicator) : communicator_(communicator) {
  check_mpi(MPI_Comm_set_errhandler(communicator_, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  int* largest = nullptr;
  int found = 0;
  check_mpi(MPI_Comm_get_attr(communicator_, MPI_TAG_UB, &largest, &found), "MPI_Comm_get_attr");
  if (found != 0) max_tag_ = *largest;
}

MpiTransport::~MpiTransport() {
  // Formally, freeing is collective, but it waits for nobody in Open MPI and MPICH, so members may do it at different
  // times.
  int finalized = 0;
  MPI_Finalized(&finalized);
  if (finalized != 0) return;
  std::unique_lock<std::recursive_mutex> lock;
  if (const auto engine = engine_.lock()) lock = engine->exclusive();
  MPI_Comm_free(&communicator_);
}

Ticket MpiTransport::post(const Piece& piece) {
  MPI_Request request = MPI_REQUEST_NULL;
  const int count = static_cast<int>(piece.bytes);  // at most kLargestPiece
  if (piece.outgoing)
    check_mpi(MPI_Isend(piece.data, count, MPI_BYTE, piece.peer, piece.tag, communicator_, &request), "MPI_Isend");
  else
    check_mpi(MPI_Irecv(piece.data, count, MPI_BYTE, piece.peer, piece.tag, communicator_, &request), "MPI_Irecv");
  return ticket_of(request);
}

bool MpiTransport::finished(Ticket& ticket, const Piece& piece) {
  MPI_Request request = request_of(ticket);
  MPI_Status status;
  int over = 0;
  const int result = MPI_Test(&request, &over, &status);
  if (result == MPI_SUCCESS && over == 0) return false;
  ticket.done = true;
  int result_class = MPI_SUCCESS;
  if (result != MPI_SUCCESS) MPI_Error_class(result, &result_class);
  AUTOMODEL_CHECK(result_class != MPI_ERR_TRUNCATE,
                  fmt::format("a message of tag {} is longer than the receive of {} bytes", piece.tag, piece.bytes));
  check_mpi(result, piece.outgoing ? "a send" : "a receive");
  if (piece.outgoing) return true;
  int bytes = 0;
  check_mpi(MPI_Get_count(&status, MPI_BYTE, &bytes), "MPI_Get_count");
  AUTOMODEL_CHECK(bytes == piece.bytes, fmt::format("a message of {} bytes met a receive of {}", bytes, piece.bytes));
  return true;
}

bool MpiTransport::cancel(Ticket& ticket, const Piece& /*piece*/) noexcept {
  ticket.done = true;  // the request leaks; nobody queries it again
  return false;
}

}  // namespace automodel::comm
