// A job's messages by pml/mp's core over the transport: MPI_Isend and MPI_Irecv, as pml/mp makes them of messages;
// writes and reads by a window of osc/mp. All receives of a run are posted when it begins.
#pragma once

#include <memory>

#include "pml/sim_job.h"
#include "run.h"

namespace ucx_mp::sim {

class PmlRun final : public Run {
public:
    // Throws std::runtime_error with one line for a job with atomic operations.
    PmlRun(Cluster& cluster, const Job& job, bool rendezvous_by_put);
    // By a message from each to each that the job knows.
    Nanos connect() override;
    [[nodiscard]] std::uint64_t eager() const override { return UINT64_MAX; } // not known: all may be

private:
    enum class Kind : std::uint8_t { data = 1, sync, hello }; // tags
    struct Request {
        mp_request_storage_t storage{}; // first: the core hands it back
        Rank* rank = nullptr;
        unsigned from = kAnyone; // of a receive
        Kind kind = Kind::data;
    };
    struct Incoming {
        unsigned from;
        std::uint64_t bytes;
        Kind kind;
    };
    void begin_run() override;
    [[nodiscard]] bool send(Rank& rank, const Step& step) override;
    [[nodiscard]] bool move(Rank& rank, const Step& step) override;
    [[nodiscard]] bool is_complete(Rank& rank) override;
    void open_windows();
    [[nodiscard]] Request& request(Rank& rank, Kind kind, unsigned from = kAnyone);
    void send(Rank& rank, unsigned to, std::uint64_t bytes, Kind kind);
    void receive(Rank& rank, const Incoming& message);
    void completed(mp_request_t& shown);
    [[nodiscard]] mp_data_t data(const Rank& rank, std::uint64_t bytes) const {
        return {memory_[rank.index].data, bytes, nullptr};
    }

    MpiJob core_;
    std::vector<Node::Memory> memory_;
    std::vector<std::vector<Incoming>> incoming_; // by rank
    std::vector<glue::Window*> windows_;          // by rank; empty: no writes and reads
    std::vector<std::byte> keys_;                 // of all windows, which look at them later
    std::vector<bool> moved_;                     // by rank: something that has not been flushed
    std::uint64_t greetings_ = 0;                 // of connect(), that have not come
    std::vector<std::unique_ptr<Request>> requests_;
    std::vector<Request*> free_;
};

} // namespace ucx_mp::sim
